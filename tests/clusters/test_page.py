"""docs/cluster.md as it is written, with a Slurm and a trainer that pretend."""

import re
import unittest

from support import JOB, ROOT, SCONTROL, SRUN, TRAINER, ExampleTest

PAGE = ROOT / "docs/cluster.md"
SBATCH = '#!/bin/bash\nexec bash "$@"\n'
FAILS = '[ "$2" != broken.yaml ] || { echo "RuntimeError: rank $RANK" >&2; [ "$RANK" = 0 ] && exec sleep 1000; exit 3; }\n'


class Page(ExampleTest):
    def typed(self, block):
        run = self.run_example("bash", "-euo", "pipefail", "-c", block, cwd=self.folder, DDP_SSH="true",
                               **{**JOB, "SLURM_JOB_ID": "4718"})
        self.assertEqual(run.returncode, 0, block + run.stdout + run.stderr)
        return run.stdout + run.stderr

    def test_its_commands_do_what_it_says(self):
        for name, text in (("srun", SRUN), ("sbatch", SBATCH), ("scontrol", SCONTROL),
                           ("trainer", TRAINER.replace("[ -e", FAILS + "[ -e", 1))):
            self.fake(name, text)
        for name in ("examples", "configs"):
            (self.folder / name).symlink_to(ROOT / name)
        blocks = re.findall(r"^```bash\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
        dry, doctor, job, elastic, broken, hosts = blocks

        said = self.typed(dry)
        self.assertEqual(sorted(re.findall(r" RANK=(\d+) ", said)), ["0", "1"])
        self.assertEqual(self.notes.read_text(), "")

        self.assertIn("from Slurm: --nnodes=2 (SLURM_STEP_NUM_NODES)", self.typed(doctor))
        self.assertEqual({worker["args"] for worker in self.noted()}, {"doctor"})
        for block, arguments in ((job, " trainer_config.max_epochs=1"), (elastic, "")):
            self.notes.write_text("")
            self.typed(block)
            self.assertEqual([worker["world"] for worker in self.noted()], ["2", "2"])
            self.assertEqual({worker["args"] for worker in self.noted()}, {"--config configs/quickstart.yaml" + arguments})

        said = self.typed(broken)
        self.assertIn("exit code 3\n", said)
        explained = said.split("run 4718.0 on ")[1]
        self.assertIn("first failure: rank 1, exit code 3\n", explained)
        self.assertRegex(explained, r"full output: \S*/attempt_0/0/stderr.log\n")
        log = re.search(r"full output: (\S+)", explained)[1]
        self.assertEqual((self.folder / log).read_text(), "RuntimeError: rank 1\n")

        self.assertRegex(self.typed(hosts), r"node1.*\n(.*\n)*.*node2")


if __name__ == "__main__":
    unittest.main()
