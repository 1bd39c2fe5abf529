"""scripts/gpu_check.sh and gpu_bundle.sh on a machine without a GPU: the same steps on the CPU, from a bundle of the build."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from support import DDP_RUN, PATIENCE, PYTHON, ROOT, need_torch

need_torch()
SCRIPT = ROOT / "scripts/gpu_check.sh"
LONG = {"Scripts.test_a_bundle_has_all_steps"}


def module(name):
    sys.path.insert(0, str(ROOT / "scripts/gpu"))
    spec = importlib.util.spec_from_file_location(name, ROOT / f"scripts/gpu/{name}.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


class Scripts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ddp_peers_")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_script(self, script, *arguments, **variables):
        env = {**os.environ, "DDP_RUN": str(DDP_RUN), "TRAINER": str(DDP_RUN.parent / "trainer"), "PYTHON": str(PYTHON),
               "OMP_NUM_THREADS": "1", **variables}
        return subprocess.run([script, *arguments], env=env, cwd=self.folder, capture_output=True, text=True, check=False,
                              timeout=4 * PATIENCE)

    def check(self, *arguments, script=SCRIPT, **variables):
        return self.run_script(script, *arguments, "--out", "out", **variables)

    def figures(self):
        return {figure["name"]: figure for figure in json.loads((self.folder / "out/gpu_check.json").read_text())}

    def bundled(self, *steps):
        """The figures of these steps, measured by a bundle of the build."""
        build = DDP_RUN.parent.parent
        if not (build / "lib/libtrainer_kernels.so").exists():
            self.skipTest("this build has no CUDA modules")
        if subprocess.run(["unshare", "--mount", "--map-root-user", "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("no user namespaces here")
        done = self.run_script(ROOT / "scripts/gpu_bundle.sh", "--build", str(build), str(self.folder / "bundle"))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        done = self.check("--bundle", "bundle", "--dry-run", "--budget", "100000", "--only", *steps,
                          script=self.folder / "bundle/scripts/gpu_check.sh", TRAINER="", DDP_RUN="")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return self.figures()

    def test_a_bundle_measures_without_the_build_folder(self):
        figures = self.bundled("b16", "kernels")
        self.assertAlmostEqual(figures["b16"]["ratio"], figures["b16"]["ours"] / figures["b16"]["peer"])
        self.assertEqual(figures["kernels"]["left_out"], "needs a GPU")
        self.assertEqual(figures["b16"]["device"], "dry run on the CPU")

    def test_a_bundle_has_all_steps(self):
        figures = self.bundled("suspects", "traces", "gpt2_124m", "digits", "killed")
        self.assertIn("gpt2_124m_b64", figures)
        self.assertIn("attention, forward and backward", " ".join(figures))
        for name in ("one seed twice", "stopped and resumed", "killed and restarted"):
            self.assertEqual((figures[name]["steps"], figures[name]["largest_difference"]), (12, 0), name)

    def test_a_failed_step_is_named_and_the_others_run(self):
        silent = self.folder / "silent"
        silent.write_text("#!/bin/sh\n")
        silent.chmod(0o755)
        done = self.check("--dry-run", "--only", "suspects", "killed", TRAINER=str(silent))
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("failed: killed", done.stdout)
        self.assertIn("failed", self.figures()["killed"])
        self.assertIn("alone: gradient norm", self.figures())

    def test_what_does_not_fit_into_the_budget_is_left_out_by_name(self):
        done = self.check("--dry-run", "--budget", "1", "--only", "b16", "llama")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(self.figures()["llama"]["left_out"], r"^needs 40 s, [01] s left$")
        self.assertIn("left out: b16, llama", done.stdout)

    def test_without_a_driver_it_says_so(self):
        for name in ("bash", "dirname"):
            (self.folder / name).symlink_to(f"/usr/bin/{name}")
        done = self.check("--no-build", PATH=str(self.folder))
        self.assertEqual((done.returncode, done.stderr),
                         (1, "error: nvidia-smi was not found: no NVIDIA driver on this machine\n"))

    def test_unknown_arguments_and_missing_programs_are_refused(self):
        self.assertEqual(self.check("--nonsense").returncode, 2)
        done = self.check("--dry-run", TRAINER="/nonexistent/trainer")
        self.assertEqual(done.returncode, 2)
        self.assertIn("error: /nonexistent/trainer is missing; tip: ", done.stderr)
        done = self.run_script(ROOT / "scripts/gpu_bundle.sh", "--against", "no-such-commit", "bundle")
        reason = "no such commit: no-such-commit" if shutil.which("git") else "--against needs git"
        self.assertEqual((done.returncode, done.stderr), (2, f"error: {reason}\n"))


class Figures(unittest.TestCase):
    def test_a_trace_is_summed_by_family_and_overlapping_kernels_count_once_as_busy(self):
        def event(name, ts, dur, cat="kernel"):
            return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur}
        events = [event("nvjet_hsh_128", 0, 400), event("ddp_adam", 200, 400), event("Memcpy DtoH", 900, 100, "gpu_memcpy"),
                  event("aten::mm", 0, 1000, "cpu_op")]
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"traceEvents": events}, file)
            file.flush()
            found = module("families").account(file.name, steps=2)
        self.assertEqual((found["busy_ms"], found["span_ms"], found["launches"]), (0.35, 0.5, 1.5))
        self.assertAlmostEqual(found["idle"], 0.3)
        self.assertEqual(found["families"], [("products", 0.2, 0.5), ("own kernels", 0.2, 0.5), ("copies", 0.05, 0.5)])

    def test_only_a_gpus_figures_are_recorded(self):
        record = module("record")
        figure = {"name": "b16", "what": "w", "device": "NVIDIA H100", "ours": 3.0, "peer": 4.0, "ratio": 0.75, "unit": "ms/step",
                  "commit": "c", "date": "d", "torch": "2.11", "losses": [1, 2]}
        figures = record.merged([], [figure, {**figure, "name": "b64", "device": "dry run on the CPU"}, {**figure, "name": "other"}])
        self.assertEqual(figures, [{field: figure[field] for field in record.FIELDS}])
        self.assertIn("| 3, 4 ms/step, **0.75** | NVIDIA H100, torch 2.11, c, d |", record.table(figures))

    def test_the_page_has_the_recorded_figures(self):
        page, figures = (ROOT / "docs/gpus.md").read_text(), json.loads((ROOT / "docs/gpu_figures.json").read_text())
        self.assertEqual(page, module("record").with_table(page, figures), "run scripts/gpu_check.sh --record FILE")


if __name__ == "__main__":
    unittest.main()
