"""What torchrun promises and ddp-run must keep: each test runs twice, with the one and with the other.

torchrun takes seconds to start, so each run asks many things.
"""

import json
import re
import unittest

from ports import free_port
from support import WORKERS, both_launchers, need_torch, signal

need_torch()

class Contract:
    maxDiff = None

    def check_environment(self, seen, **expected):
        self.assertEqual({name: seen["environment"].get(name) for name in expected}, expected)

    def test_two_workers_restart_once_and_are_told_who_they_are(self):
        arguments = ["a", "b c", "", "$HOME", "--nproc-per-node=9", "-m", "--", "x=$(y)", "\u00e4"]
        endpoint = free_port()
        job = self.succeed("--nproc_per_node", "2", "--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{endpoint}",
                           "--rdzv-id=job7", "--role=worker", "--max-restarts=1", "--log-dir",
                           self.logs, "--tee=3", "probe.py", "rank-${local_rank}", *arguments, FAIL_FIRST=1, KEPT="me",
                           OMP_NUM_THREADS=5, RANK=77, WORLD_SIZE=99, MASTER_PORT=1)
        run, files = self.log_tree()
        self.assertRegex(run.name, "^job7_.+")
        ports = []
        for attempt in (0, 1):
            meeting_points = set()
            for rank in (0, 1):
                seen = self.record(rank, attempt)
                self.check_environment(
                    seen, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", GROUP_RANK="0",
                    GROUP_WORLD_SIZE="1", ROLE_NAME="worker", ROLE_RANK=str(rank), ROLE_WORLD_SIZE="2",
                    TORCHELASTIC_RESTART_COUNT=str(attempt), TORCHELASTIC_MAX_RESTARTS="1", TORCHELASTIC_RUN_ID="job7",
                    TORCHELASTIC_USE_AGENT_STORE="True", TORCH_NCCL_ASYNC_ERROR_HANDLING="1", OMP_NUM_THREADS="5",
                    TORCHELASTIC_SIGNALS_TO_HANDLE="SIGTERM,SIGINT,SIGHUP,SIGQUIT", KEPT="me",
                    TORCHELASTIC_ERROR_FILE=f"{run}/attempt_{attempt}/{rank}/error.json")
                self.assertEqual(seen["argv"], [f"rank-{rank}", *arguments])
                self.assertEqual(seen["folder"], str(WORKERS))
                self.assertEqual(seen["descriptors"], [0, 1, 2])
                self.assertTrue(seen["unbuffered"])
                self.assertTrue(seen["session_leader"])
                meeting_points.add((seen["environment"]["MASTER_ADDR"], seen["environment"]["MASTER_PORT"]))
            self.assertEqual(len(meeting_points), 1)
            ports.append(int(meeting_points.pop()[1]))
        self.assertTrue(all(1 < port < 65536 and port != endpoint for port in ports), ports)
        self.assertEqual(files, {f"attempt_{attempt}/{rank}/std{stream}.log"
                                 for attempt in (0, 1) for rank in (0, 1) for stream in ("out", "err")})
        self.assertEqual((run / "attempt_1/0/stdout.log").read_text(), "out 0\nerr 0 needle\n")
        self.assertEqual((run / "attempt_1/1/stderr.log").read_text(), "to stderr 1\n")
        self.assertEqual(sorted(job.out.splitlines()), sorted(
            2 * [f"[worker{rank}]:{line} {rank}{end}" for rank in (0, 1) for line, end in (("out", ""), ("err", " needle"))]))
        for rank in (0, 1):
            self.assertEqual(job.err.splitlines().count(f"[worker{rank}]:to stderr {rank}"), 2)

    def test_a_module_runs_with_options_from_the_environment(self):
        job = self.succeed("--max_restarts=0", "--log_dir", self.logs, "-m", "package.module", "--role=mine", "x",
                           PET_NPROC_PER_NODE=2, PET_ROLE="given", PET_MAX_RESTARTS=4, PET_REDIRECTS="0:1,1:3")
        for rank in (0, 1):
            seen = self.record(rank)
            self.check_environment(seen, ROLE_NAME="given", TORCHELASTIC_MAX_RESTARTS="0", WORLD_SIZE="2")
            self.assertEqual(seen["argv"], ["--role=mine", "x"])
            self.assertEqual(seen["package"], "package")
            self.assertTrue(seen["unbuffered"])
        run, files = self.log_tree()
        self.assertEqual(files, {"attempt_0/0/stdout.log", "attempt_0/1/stdout.log", "attempt_0/1/stderr.log"})
        self.assertEqual((run / "attempt_0/1/stdout.log").read_text(), "out 1\n")
        self.assertEqual(job.out, "")
        self.assertIn("to stderr 0\n", job.err)
        self.assertNotIn("to stderr 1\n", job.err)

    def test_one_worker_of_any_program_keeps_its_threads_and_may_serve_the_store_itself(self):
        job = self.succeed("--standalone", "--no-python", "--virtual-local-rank", "--log-dir=/dev/null", "/bin/sh", "-c",
                           'echo "$OMP_NUM_THREADS|$TORCHELASTIC_ERROR_FILE|$TORCHELASTIC_USE_AGENT_STORE|$0|$1"; '
                           'echo "$LOCAL_RANK|$CUDA_VISIBLE_DEVICES|$HIP_VISIBLE_DEVICES"; shift; echo "$@"',
                           "name", "one  two", "$local_rank", "$local_ranks", "$${local_rank}", "$$local_rank", "$ $x", OMP_NUM_THREADS=None, TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1,
                           CUDA_VISIBLE_DEVICES="5,7", HIP_VISIBLE_DEVICES="3, 4")
        self.assertEqual(job.out, "||False|name|one  two\n0|3|3\n0 $local_ranks ${local_rank} $local_rank $ $x\n")

    def test_lines_of_any_kind_keep_their_bytes_and_an_operators_variables_count(self):
        port = free_port()
        job = self.succeed("--no-python", "/bin/sh", "-c", "printf 'one\\n\\n\\303\\244\\n'; printf 'no end'; "
                           'printf "$MASTER_ADDR $MASTER_PORT $GROUP_RANK\\n" >&2', PET_NNODES="1:1", PET_NODE_RANK=0,
                           PET_MASTER_ADDR="127.0.0.1", PET_MASTER_PORT=port, PET_TEE=3, PET_ROLE="w x")
        self.assertEqual(job.out.splitlines(), ["[w x0]:" + line for line in ("one", "", "\u00e4", "no end")])
        self.assertIn(f"[w x0]:127.0.0.1 {port} 0\n", job.err)

    def test_filters_need_no_tee_and_no_files_need_no_other_options(self):
        job = self.succeed("--log-dir", self.logs, "--duplicate-stdout-filters=needle", "--duplicate_stderr_filters", "x",
                           "probe.py")
        self.assertEqual(job.out, "out 0\nerr 0 needle\n")
        run, files = self.log_tree()
        self.assertIn("attempt_0/filtered_stdout.log", files)
        job = self.succeed("--log-dir=/dev/null", "--tee=1", "--redirects=3", "probe.py")
        self.assertEqual([line.removeprefix("[default0]:") for line in job.out.splitlines()], ["out 0", "err 0 needle"])
        self.assertIn("to stderr 0\n", job.err)

    def test_a_failure_stops_the_others_by_sigterm_and_fails_the_job(self):
        job = self.run_job("--standalone", "--nproc-per-node=2", "traps.py", FAIL=1)
        self.assertGreater(job.code, 0, str(job))
        self.assertEqual(self.record(0)["signal"], "SIGTERM")
        self.assertFalse((self.records / "0.1.json").exists())

    def check_signal(self, name):
        job = self.start("--nproc-per-node=2", "--max-restarts=3", "traps.py")
        self.wait_for_workers(2)
        job.signal(getattr(signal, name))
        job.finish()
        self.assertNotEqual(job.code, 0, str(job))
        for rank in (0, 1):
            self.assertEqual(self.record(rank)["signal"], name)  # and no restart: attempt 0

    def test_sigterm_goes_to_all_workers_and_ends_the_job(self):
        self.check_signal("SIGTERM")

    def test_sigint_goes_to_all_workers_and_ends_the_job(self):
        self.check_signal("SIGINT")

    def test_a_fixed_address_a_virtual_local_rank_and_a_chosen_prefix(self):
        port = free_port()
        job = self.succeed("--nproc-per-node=2", "--master_addr=127.0.0.1", f"--master-port={port}", "--virtual-local-rank",
                           "--log-dir", self.logs, "-t", "3", "--local_ranks_filter=1", "--duplicate-stdout-filters=needle",
                           "--log-line-prefix-template=<${role_name} ${local_rank} ${rank} ${other}>", "probe.py",
                           CUDA_VISIBLE_DEVICES="5, 7,9", TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1)
        for rank, gpu in ((0, "5"), (1, "7")):
            self.check_environment(self.record(rank), RANK=str(rank), LOCAL_RANK="0", CUDA_VISIBLE_DEVICES=gpu,
                                   MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TORCHELASTIC_USE_AGENT_STORE="True")
        self.assertEqual(job.out.splitlines(), ["<default 1 1 ${other}>out 1", "<default 1 1 ${other}>err 1 needle"])
        run, files = self.log_tree()
        self.assertIn("attempt_0/0/stdout.log", files)
        self.assertEqual((run / "attempt_0/filtered_stdout.log").read_text(), "<default 1 1 ${other}>err 1 needle\n")

    def test_what_record_has_written_is_in_the_report_and_goes_to_the_job_around(self):
        around = self.folder / "around.json"
        job = self.run_job("--nproc-per-node=2", "--log-dir", self.logs, "recorded.py", TORCHELASTIC_ERROR_FILE=around)
        self.assertGreater(job.code, 0, str(job))
        self.assertIn("no more paper", job.err)
        # What log scrapers look for.
        self.assertRegex(job.err, re.compile(
            r"^Root Cause \(first observed failure\):\n\[\d+\]:\n  time      : \d{4}-\d\d-\d\d_\d\d:\d\d:\d\d\n"
            r"  host      : \S+\n  rank      : 1 \(local_rank: 1\).*\n  exitcode  : 1 \(pid: \d+\).*\n"
            r"  error_file: /.*/error.json\n  traceback : Traceback \(most recent call last\):\n", re.MULTILINE))
        run, files = self.log_tree()
        self.assertEqual(files, {"attempt_0/1/error.json"})
        message = json.loads((run / "attempt_0/1/error.json").read_text())["message"]
        self.assertEqual(message["message"], "ValueError: no more paper")
        message["errorCode"] = 1
        self.assertEqual(json.loads(around.read_text())["message"], message)

    def test_a_worker_that_a_timer_finds_too_slow_ends_the_job(self):
        job = self.run_job("--nproc-per-node=2", "timed.py", TORCHELASTIC_ENABLE_FILE_TIMER=1)
        self.assertNotEqual(job.code, 0, str(job))
        self.assertTrue((self.records / "0.1.json").exists())
        if self.launcher.name == "ddp-run":  # torchrun ends itself by the signal
            self.assertEqual(job.code, 128 + signal.SIGKILL, str(job))
            self.assertRegex(job.err, r"rank      : 1 .*\n.*\(SIGKILL\): timer '.*' expired\n")

    def test_wrong_usage_exits_with_2(self):
        job = self.run_job("--no-such-option", "probe.py")
        self.assertEqual(job.code, 2, str(job))
        self.assertTrue(re.search("no.such.option", job.err))


ContractOfTorchrun, ContractOfDdpRun = both_launchers(Contract)
del Contract
# That torchrun keeps to it changes with torch alone.
LONG = {f"ContractOfTorchrun.{name}" for name in dir(ContractOfTorchrun) if name.startswith("test_")}

if __name__ == "__main__":
    unittest.main()
