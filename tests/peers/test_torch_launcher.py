"""Counterparts of PyTorch's own tests of its launcher, test/distributed/launcher/test_run.py, for ddp-run.

Each has the name of the test there and asserts, of whole jobs, what that one asserts. Of the others:

  test_nproc_gpu_launch_configurations     tests/launcher/plan/local_world_size_test.cc: GPUs are counted without torch
  test_nproc_xpu_launch_configurations     does not apply: ddp-run knows CUDA's and ROCm's GPUs only
  test_launch_elastic_agent_raise_exception  of torchelastic's inside; an agent that is killed: tests/launcher/
                                           run_no_orphan_test.cc and run_nodes_elastic_test.cc
  test_min_max_nodes_parse                 tests/launcher/cli/launch_config_test.cc, test_options.py
  test_launch_shutdown                     of torchelastic's inside; that the rendezvous ends with the job:
                                           tests/launcher/run_nodes_test.cc
  test_is_not_torchelastic_launched        does not apply: no launcher takes part
  test_virtual_local_rank                  test_contract.py, by what the workers see; the test there compares code that
                                           is compiled for two GPUs
"""

import json
import os
import socket
import unittest

from support import JobTest, WORKERS, need_torch

need_torch()

USUAL = ("--monitor-interval=1", "--start-method=spawn")
ELASTIC_CONF = "join_timeout=5,last_call_timeout=1,timeout=5"


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


class TorchLauncher(JobTest):
    def setUp(self):
        super().setUp()
        self.into = self.folder / "into"
        self.into.mkdir()
        self.script = [WORKERS / "touch.py", f"--into={self.into}"]
        self.shell_script = [WORKERS / "touch.sh", self.into]

    def start(self, *arguments, **variables):
        return super().start(*arguments, FROM_OUTSIDE="yes", **variables)

    def assert_all_ran(self, count):
        self.assertEqual(sorted(os.listdir(self.into), key=int), [str(rank) for rank in range(count)])

    def elastic(self, port, conf=ELASTIC_CONF):
        return ["--nnodes=1:2", "--nproc-per-node=4", "--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{port}",
                f"--rdzv-conf={conf}", "--rdzv-id=4711", *USUAL]

    # ---- scripts and programs ----

    def test_launch_user_script_python(self):
        self.succeed("--nnodes=1", "--nproc-per-node=4", "--rdzv-id=4711", *USUAL, *self.script)
        self.assert_all_ran(4)

    def test_launch_user_script_python_caffe2_bc(self):
        self.succeed("--nnodes=1", "--nproc-per-node=4", *USUAL, "--master-addr=localhost", f"--master-port={free_port()}",
                     "--node-rank=0", *self.script)
        self.assert_all_ran(4)

    def shell_job(self, count, *options):
        options = ("--nnodes=1", *options, "--rdzv-id=4711", *USUAL, "--no-python")
        refused = self.run_job(*options, "--module", *self.shell_script)
        self.assertEqual(refused.code, 2, str(refused))
        self.assertRegex(refused.err, "^error: .*--no-python")
        self.assert_all_ran(0)
        self.succeed(*options, *self.shell_script)
        self.assert_all_ran(count)

    def test_launch_user_script_bash(self):
        self.shell_job(4, "--nproc-per-node=4")

    def test_launch_user_script_default_nproc(self):
        self.shell_job(1)

    def test_launch_with_env_vars(self):
        variables = {"PET_NNODES": "1", "PET_NPROC_PER_NODE": "4", "PET_RDZV_ID": "4711", "PET_MONITOR_INTERVAL": "1",
                     "PET_START_METHOD": "spawn", "PET_NO_PYTHON": "1"}
        refused = self.run_job(*self.shell_script, PET_MODULE="1", **variables)
        self.assertEqual(refused.code, 2, str(refused))
        self.succeed(*self.shell_script, PET_MODULE="0", **variables)
        self.assert_all_ran(4)

    def test_launch_standalone(self):
        self.succeed("--nnodes=1", "--nproc-per-node=4", "--standalone", *USUAL, *self.script)
        self.assert_all_ran(4)

    def test_launch_run_path(self):
        self.succeed("--run-path", "--nnodes=1", "--nproc-per-node=4", *USUAL, *self.script)
        self.assert_all_ran(4)

    # ---- the number of workers ----

    def nproc_job(self, text):
        return self.run_job("--nnodes=1", f"--nproc-per-node={text}", "--rdzv-id=4711", *USUAL, "--no-python",
                            *self.shell_script, CUDA_VISIBLE_DEVICES="")

    def test_nproc_launch_auto_configurations(self):
        job = self.nproc_job("auto")
        self.assertEqual(job.code, 0, str(job))
        self.assert_all_ran(len(os.sched_getaffinity(0)))

    def test_nproc_launch_number_configurations(self):
        job = self.nproc_job("4")
        self.assertEqual(job.code, 0, str(job))
        self.assert_all_ran(4)

    def test_nproc_launch_unknown_configurations(self):
        job = self.nproc_job("unknown")
        self.assertEqual(job.code, 2, str(job))
        self.assertRegex(job.err, "^error: --nproc.per.node=unknown: ")
        self.assert_all_ran(0)

    # ---- elastic jobs ----

    def test_launch_elastic(self):
        self.succeed(*self.elastic(free_port()), *self.script)
        self.assert_all_ran(4)

    def test_launch_elastic_with_quotes_that_no_shell_took_away(self):
        """As the test there writes it: torchrun takes them for parts of keys that it does not know."""
        self.succeed(*self.elastic(free_port(), f"'{ELASTIC_CONF}'"), *self.script)
        self.assert_all_ran(4)

    def test_launch_elastic_worker_raise_exception(self):
        events = self.folder / "events"
        job = self.run_job(*self.elastic(free_port()), "--max-restarts=0", f"--events={events}", WORKERS / "touch.py", "--fail")
        self.assertEqual(job.code, 1, str(job))
        self.assertIn("RuntimeError: as asked for", job.err)
        ends = [event for event in map(json.loads, events.read_text().splitlines())
                if event["source"] == "AGENT" and event["metadata"]["state"] == "FAILED"]
        self.assertEqual(len(ends), 1, ends)

    def test_launch_elastic_multiple_agents(self):
        port = free_port()
        # torchrun's default; ddp-run alone would begin after a second in which nobody has come.
        conf = "timeout=5,last_call_timeout=30"
        jobs = [self.start(*self.elastic(port, conf), *self.script) for _ in range(2)]
        for job in jobs:
            self.assertEqual(job.finish().code, 0, str(job))
        self.assert_all_ran(8)

    # ---- torch in the workers ----

    def launched(self, *options):
        self.succeed("--run-path", "--nnodes=1", "--nproc-per-node=1", "--monitor-interval=1", *options,
                     WORKERS / "launched.py", self.folder / "answer")
        self.assertEqual((self.folder / "answer").read_text(), "True")

    def test_is_torchelastic_launched(self):
        self.launched()

    def test_is_torchelastic_launched_with_logs_spec_defined(self):
        self.launched("--logs_specs=default")

    def test_logs_logs_spec_entrypoint_must_be_defined(self):
        job = self.run_job("--run-path", "--nnodes=1", "--nproc-per-node=1", "--logs_specs=DOESNOT_EXIST",
                           WORKERS / "launched.py", self.folder / "answer")
        self.assertEqual(job.code, 2, str(job))
        self.assertFalse((self.folder / "answer").exists())

    def init_method(self, port, url):
        job = self.succeed("--run-path", "--nnodes=1", "--nproc-per-node=4", "--master-addr=localhost",
                           f"--master-port={port}", "--monitor-interval=1", WORKERS / "init_method.py", url)
        self.assertEqual(job.out.splitlines(), ["sum 6"] * 4)

    def test_init_method_tcp_with_torchelastic(self):
        port = free_port()
        self.init_method(port, f"tcp://localhost:{port}")

    def test_init_method_env_with_torchelastic(self):
        self.init_method(free_port(), "env://")

    # ---- output ----

    def test_capture_logs_using_default_logs_specs(self):
        job = self.succeed("--nnodes=1", "--nproc-per-node=4", "--rdzv-id=4711", "--redirect=3", "--tee=3", *USUAL,
                           "--no-python", *self.shell_script, TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE="[rank${rank}]: ")
        for rank in range(4):
            self.assertIn(f"[rank{rank}]: creating ", job.out)


if __name__ == "__main__":
    unittest.main()
