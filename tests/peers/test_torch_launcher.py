"""Counterparts of PyTorch's own tests of its launcher, test/distributed/launcher/test_run.py, for ddp-run.

Each has the name of the test there, and launch_user_scripts several, and asserts, of whole jobs, what that one asserts. The others:

  test_nproc_launch_*_configurations       tests/launcher/plan/local_world_size_test.cc: GPUs are counted without torch
  test_launch_elastic_worker_raise_exception, test_launch_elastic_multiple_agents, test_launch_elastic_agent_raise_exception
                                           tests/launcher/run_observed_test.cc, run_nodes_elastic_test.cc and run_no_orphan_test.cc
  test_min_max_nodes_parse                 tests/launcher/cli/launch_config_test.cc, test_options.py
  test_launch_shutdown                     of torchelastic's inside; that the rendezvous ends with the job:
                                           tests/launcher/run_nodes_test.cc
  test_capture_logs_using_default_logs_specs, test_virtual_local_rank   test_contract.py
  test_is_torchelastic_launched            is asserted by the one with the logs' specification
  test_init_method_env_with_torchelastic   test_scripts.py
  test_is_not_torchelastic_launched        does not apply: no launcher takes part
"""

import os
import unittest

from ports import free_port
from support import JobTest, WORKERS, need_torch

need_torch()

USUAL = ("--monitor-interval=1", "--start-method=spawn")
ELASTIC_CONF = "join_timeout=5,last_call_timeout=1,timeout=5"


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
        """And makes the folder empty for the next job."""
        self.assertEqual(sorted(os.listdir(self.into), key=int), [str(rank) for rank in range(count)])
        for rank in range(count):
            (self.into / str(rank)).unlink()

    # ---- scripts and programs ----

    def test_launch_user_scripts(self):
        elastic = ["--nnodes=1:2", "--rdzv-backend=c10d", f"--rdzv-conf={ELASTIC_CONF}"]
        # As the test there writes it: torchrun takes the quotes, which no shell took away, for parts of keys that it does not know.
        quoted = ["--nnodes=1:2", "--rdzv-backend=c10d", f"--rdzv-conf='{ELASTIC_CONF}'"]
        for options in (["--nnodes=1", "--rdzv-id=4711"], ["--nnodes=1", "--standalone"], ["--nnodes=1", "--run-path"],
                        ["--nnodes=1", "--master-addr=localhost", f"--master-port={free_port()}", "--node-rank=0"],
                        [*elastic, f"--rdzv-endpoint=localhost:{free_port()}"], [*quoted, f"--rdzv-endpoint=localhost:{free_port()}"]):
            with self.subTest(options=options):
                self.succeed("--nproc-per-node=4", *options, *USUAL, *self.script)
                self.assert_all_ran(4)

    def test_launch_user_script_bash(self):
        for count, options in ((4, ["--nproc-per-node=4"]), (1, [])):
            options = ("--nnodes=1", *options, "--rdzv-id=4711", *USUAL, "--no-python")
            refused = self.run_job(*options, "--module", *self.shell_script)
            self.assertEqual(refused.code, 2, str(refused))
            self.assertRegex(refused.err, "^error: .*--no-python")
            self.assert_all_ran(0)
            self.succeed(*options, *self.shell_script)
            self.assert_all_ran(count)

    def test_launch_with_env_vars(self):
        variables = {"PET_NNODES": "1", "PET_NPROC_PER_NODE": "4", "PET_RDZV_ID": "4711", "PET_MONITOR_INTERVAL": "1",
                     "PET_START_METHOD": "spawn", "PET_NO_PYTHON": "1"}
        refused = self.run_job(*self.shell_script, PET_MODULE="1", **variables)
        self.assertEqual(refused.code, 2, str(refused))
        self.succeed(*self.shell_script, PET_MODULE="0", **variables)
        self.assert_all_ran(4)

    # ---- torch in the workers ----

    def launched(self, *options):
        self.succeed("--run-path", "--nnodes=1", "--nproc-per-node=1", "--monitor-interval=1", *options,
                     WORKERS / "launched.py", self.folder / "answer")
        self.assertEqual((self.folder / "answer").read_text(), "True")

    def test_is_torchelastic_launched_with_logs_spec_defined(self):
        self.launched("--logs_specs=default")

    def test_logs_logs_spec_entrypoint_must_be_defined(self):
        job = self.run_job("--run-path", "--nnodes=1", "--nproc-per-node=1", "--logs_specs=DOESNOT_EXIST",
                           WORKERS / "launched.py", self.folder / "answer")
        self.assertEqual(job.code, 2, str(job))
        self.assertFalse((self.folder / "answer").exists())

    def test_init_method_tcp_with_torchelastic(self):
        port = free_port()
        job = self.succeed("--run-path", "--nnodes=1", "--nproc-per-node=2", "--master-addr=localhost",
                           f"--master-port={port}", "--monitor-interval=1", WORKERS / "init_method.py", f"tcp://localhost:{port}")
        self.assertEqual(job.out.splitlines(), ["sum 1"] * 2)


if __name__ == "__main__":
    unittest.main()
