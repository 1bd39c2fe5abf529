"""Where a job's token comes from, and who can see it."""

import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from ports import free_port
from support import DDP_RUN, PATIENCE
from wire_peer import Agent, Closed

WORKER = 'echo "rank $RANK of $WORLD_SIZE"'
# Fakes ssh, and notes what anybody could see of it and of the shell that it starts.
SSH = """#!/bin/sh
tr '\\0' ' ' < /proc/$$/cmdline >> "$NOTES"; env >> "$NOTES"
exec /bin/sh -c "$2"
"""


class TokensTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.port = free_port()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PET_", "SLURM_", "OMPI_", "XDG_"))}
        self.environment = {**kept, "HOME": str(self.folder), "TMPDIR": str(self.folder), "OMP_NUM_THREADS": "1"}

    def start(self, *options, worker=WORKER, **environment):
        process = subprocess.Popen([DDP_RUN, *options, "--no-python", "sh", "-c", worker], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   env={**self.environment, **environment})
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        return process

    def fixed(self, rank, *options, address="127.0.0.1", **environment):
        return self.start("--nnodes=2", f"--node-rank={rank}", f"--master-addr={address}", f"--master-port={self.port}",
                          *options, **environment)

    def file(self, mode, text="0123456789abcdef0123456789abcdef\n"):
        path = self.folder / f"token{mode:o}"
        path.write_text(text)
        path.chmod(mode)
        return path

    def output(self, process, code=0):
        text = process.communicate(timeout=PATIENCE)[0]
        self.assertEqual(process.returncode, code, text)
        return text

    def check_that_strangers_are_turned_away(self):
        """Those without the token, as soon as the host listens."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                with self.assertRaises(Closed):
                    Agent(self.port)
                return
            except ConnectionRefusedError:
                self.assertLess(time.monotonic(), end)
                time.sleep(0.05)

    def test_a_file_that_others_can_read_is_refused(self):
        for mode in (0o644, 0o640, 0o604, 0o622):
            file = self.file(mode)
            text = self.output(self.fixed(0, f"--rdzv-token-file={file}"), code=2)
            self.assertEqual(text, f"error: --rdzv-token-file={file}: other users can read or change it (mode 0{mode:o}); "
                                   f"run: chmod 600 {file}\n")

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to give a file away")
    def test_a_file_of_another_user_is_refused(self):
        file = self.file(0o600)
        os.chown(file, 12345, 12345)
        text = self.output(self.fixed(0, f"--rdzv-token-file={file}"), code=2)
        self.assertIn("belongs to another user (uid 12345)", text)

    def test_a_process_substitution_is_private_enough(self):
        nodes = []
        for rank in (0, 1):
            reader, writer = os.pipe()
            os.write(writer, b"0123456789abcdef\n")
            os.close(writer)
            process = subprocess.Popen(
                [DDP_RUN, "--nnodes=2", f"--node-rank={rank}", "--master-addr=127.0.0.1", f"--master-port={self.port}",
                 f"--rdzv-token-file=/dev/fd/{reader}", "--no-python", "sh", "-c", WORKER],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=self.environment, pass_fds=[reader])
            os.close(reader)
            self.addCleanup(process.stdout.close)
            self.addCleanup(process.kill)
            nodes.append(process)
        for node in nodes:
            self.output(node)

    def test_auto_makes_one_private_file_for_all_nodes(self):
        nodes = [self.fixed(rank, "--rdzv-token-file=auto") for rank in (0, 1)]
        for node in nodes:
            self.output(node)
        file = self.folder / ".config/ddp-run/rdzv-token"
        self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o600)
        self.assertEqual(stat.S_IMODE(file.parent.stat().st_mode), 0o700)
        self.assertEqual(len(file.read_text()), 65)
        self.assertEqual(os.listdir(file.parent), [file.name])
        # It protects: one without it is turned away.
        host = self.fixed(0, "--rdzv-token-file=auto")
        self.check_that_strangers_are_turned_away()
        host.send_signal(signal.SIGTERM)
        host.communicate(timeout=PATIENCE)

    def test_without_a_token_one_line_says_what_that_means(self):
        address = "0.0.0.0"  # all of this machine's
        nodes = [self.fixed(rank, address=address) for rank in (0, 1)]
        first, second = self.output(nodes[0]), self.output(nodes[1])
        self.assertEqual(first.count("without a token, anyone who can connect to"), 1)
        self.assertIn("--rdzv-token-file=FILE with the same secret (openssl rand -hex 32)", first)
        self.assertNotIn("without a token", second)
        slurm = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NUM_TASKS": "2",
                 "SLURM_STEP_NODELIST": "x"}
        self.port = free_port()
        nodes = [self.fixed(rank, "--scheduler=slurm", address=address, SLURM_NODEID=str(rank), **slurm) for rank in (0, 1)]
        self.assertIn("is not on a file system known to be shared: if the nodes do share it, add --rdzv-token-file=auto",
                      self.output(nodes[0]))
        self.output(nodes[1])

    def test_hosts_get_a_token_that_nobody_sees(self):
        ssh = self.folder / "ssh"
        ssh.write_text(SSH)
        ssh.chmod(0o755)
        notes = self.folder / "notes"
        worker = f'for p in $PPID $$; do tr "\\0" " " < /proc/$p/cmdline; tr "\\0" "\\n" < /proc/$p/environ; done >> {notes}; {WORKER}'
        # The host's own peer is one of ours that has no token.
        job = self.start("--hosts=a,b", "--master-addr=127.0.0.1", f"--master-port={self.port}", worker=worker,
                         DDP_SSH=str(ssh), NOTES=str(notes))
        text = self.output(job)
        self.assertIn("rank 0 of 2", text)
        self.assertIn("rank 1 of 2", text)
        seen = notes.read_text()
        self.assertIn("--rdzv-token-file=-", seen)
        self.assertNotRegex(seen, r"[0-9a-f]{64}")

    def test_the_token_of_hosts_keeps_strangers_out(self):
        ssh = self.folder / "ssh"
        ssh.write_text(SSH)
        ssh.chmod(0o755)
        go = self.folder / "go"
        job = self.start("--hosts=a,b", "--master-addr=127.0.0.1", f"--master-port={self.port}",
                         worker=f"while [ ! -e {go} ]; do sleep 0.1; done", DDP_SSH=str(ssh), NOTES=str(self.folder / "notes"))
        self.check_that_strangers_are_turned_away()
        go.touch()
        self.output(job)


if __name__ == "__main__":
    unittest.main()
