"""A static job of several nodes: some are torchrun, one is what ddp-run says and hears in its place.

DDP_TORCHRUN_NODE names the program that carries out ddp-run's part, tests/launcher/torchrun_node.cc; the test
starts the workers of that node as ddp-run would.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from support import DDP_RUN, PATIENCE, PYTHON, ROOT, need_torch

need_torch()
NODE = os.environ.get("DDP_TORCHRUN_NODE", str(ROOT / "build/dev/bin/torchrun_node"))

# Forms the group, sums over all ranks, and leaves what it was told.
WORKER = """
import json, os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(x)
dist.barrier()
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE", "MASTER_PORT",
         "GROUP_RANK", "GROUP_WORLD_SIZE", "TORCHELASTIC_USE_AGENT_STORE")
told = {name: os.environ.get(name) for name in names}
with open(os.path.join(sys.argv[1], os.environ["RANK"]), "w") as file:
    json.dump({**told, "sum": x.item()}, file)
dist.destroy_process_group()
# With torch 2.15 the interpreter may abort while it ends; the result is out by then.
os._exit(0)
"""


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class MixedJob(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="ddp_mixed_"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.port = free_port()
        self.worker = self.folder / "worker.py"
        self.worker.write_text(WORKER)
        self.records = self.folder / "records"
        self.records.mkdir()
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(("TORCH", "PET_"))}
        self.env.update(OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", PYTHONDONTWRITEBYTECODE="1",
                        TMPDIR=str(self.folder))

    def start(self, command, **variables):
        process = subprocess.Popen(list(map(str, command)), env={**self.env, **variables}, text=True,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.kill()
        process.communicate()

    def torchrun(self, rank, nodes, workers, role="default"):
        return self.start([PYTHON, "-m", "torch.distributed.run", f"--nnodes={nodes}", f"--node-rank={rank}",
                           f"--nproc-per-node={workers}", "--master-addr=127.0.0.1", f"--master-port={self.port}",
                           "--rdzv-id=job7", f"--role={role}", self.worker, self.records])

    def our_node(self, rank, nodes, workers, role="default"):
        return self.start([NODE, "127.0.0.1", self.port, rank, nodes, workers, role, "job7"])

    def run_our_workers(self, node, rank, nodes, workers, role="default"):
        words = node.stdout.readline().split()
        self.assertEqual(words[:1], ["ranks"], words)
        offset, world, role_offset, role_world = map(int, words[1:])
        processes = []
        for local in range(workers):
            processes.append(self.start(
                [PYTHON, self.worker, self.records], RANK=str(offset + local), WORLD_SIZE=str(world),
                LOCAL_RANK=str(local), LOCAL_WORLD_SIZE=str(workers), GROUP_RANK=str(rank),
                GROUP_WORLD_SIZE=str(nodes), ROLE_NAME=role, ROLE_RANK=str(role_offset + local),
                ROLE_WORLD_SIZE=str(role_world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(self.port),
                TORCHELASTIC_USE_AGENT_STORE="True"))
        for process in processes:
            _, err = process.communicate(timeout=PATIENCE)
            self.assertEqual(process.returncode, 0, err)
        node.stdin.write("ended well\n")
        node.stdin.flush()

    def expect_success(self, *processes):
        for process in processes:
            out, err = process.communicate(timeout=PATIENCE)
            self.assertEqual(process.returncode, 0, out + err)

    def expect_records(self, *told):
        """(node, local rank, role, role rank, role world size) in the order of the ranks."""
        self.assertEqual(sorted(path.name for path in self.records.iterdir()), [str(i) for i in range(len(told))])
        for rank, (node, local, role, role_rank, role_world) in enumerate(told):
            self.assertEqual(json.loads((self.records / str(rank)).read_text()), {
                "RANK": str(rank), "WORLD_SIZE": str(len(told)), "LOCAL_RANK": str(local), "ROLE_NAME": role,
                "ROLE_RANK": str(role_rank), "ROLE_WORLD_SIZE": str(role_world), "MASTER_PORT": str(self.port),
                "GROUP_RANK": str(node), "GROUP_WORLD_SIZE": str(max(t[0] for t in told) + 1),
                "TORCHELASTIC_USE_AGENT_STORE": "True", "sum": len(told) * (len(told) + 1) / 2})

    def test_torchrun_hosts_and_we_join(self):
        ours = self.our_node(1, 2, 1)  # early: there is nobody yet to connect to
        torchrun = self.torchrun(0, 2, 2)
        self.run_our_workers(ours, 1, 2, 1)
        self.expect_success(ours, torchrun)
        self.expect_records((0, 0, "default", 0, 3), (0, 1, "default", 1, 3), (1, 0, "default", 2, 3))

    def test_we_host_and_torchrun_joins(self):
        torchrun = self.torchrun(1, 2, 2)
        ours = self.our_node(0, 2, 1)
        self.run_our_workers(ours, 0, 2, 1)
        self.expect_success(ours, torchrun)
        self.expect_records((0, 0, "default", 0, 3), (1, 0, "default", 1, 3), (1, 1, "default", 2, 3))

    def test_three_nodes_and_two_roles(self):
        first = self.torchrun(0, 3, 1, "trainer")
        last = self.torchrun(2, 3, 1, "trainer")
        ours = self.our_node(1, 3, 1, "reader")
        self.run_our_workers(ours, 1, 3, 1, "reader")
        self.expect_success(first, ours, last)
        self.expect_records((0, 0, "trainer", 0, 2), (1, 0, "reader", 0, 1), (2, 0, "trainer", 1, 2))


class DdpRunAmongTorchruns(MixedJob):
    """ddp-run itself: nobody tells it what the other nodes run."""

    def ddp_run(self, rank, nodes, workers, role="default", *options):
        return self.start([DDP_RUN, f"--nnodes={nodes}", f"--node-rank={rank}", f"--nproc-per-node={workers}",
                           "--master-addr=127.0.0.1", f"--master-port={self.port}", "--rdzv-id=job7", f"--role={role}",
                           *options, self.worker, self.records], PYTHON_EXEC=str(PYTHON))

    def expect_noted(self, *processes):
        for process in processes:
            out, err = process.communicate(timeout=PATIENCE)
            self.assertEqual(process.returncode, 0, out + err)
            self.assertIn("the other nodes run torchrun", err)

    def test_torchrun_hosts_and_we_join(self):
        ours, torchrun = self.ddp_run(1, 2, 1), self.torchrun(0, 2, 2)
        self.expect_noted(ours)
        self.expect_success(torchrun)
        self.expect_records((0, 0, "default", 0, 3), (0, 1, "default", 1, 3), (1, 0, "default", 2, 3))

    def test_we_host_and_torchrun_joins(self):
        ours, torchrun = self.ddp_run(0, 2, 1), self.torchrun(1, 2, 2)
        self.expect_noted(ours)
        self.expect_success(torchrun)
        self.expect_records((0, 0, "default", 0, 3), (1, 0, "default", 1, 3), (1, 1, "default", 2, 3))

    def test_three_nodes_and_two_roles(self):
        first, last = self.ddp_run(0, 3, 1, "trainer"), self.torchrun(2, 3, 1, "trainer")
        between = self.ddp_run(1, 3, 1, "reader")
        self.expect_noted(first, between)
        self.expect_success(last)
        self.expect_records((0, 0, "trainer", 0, 2), (1, 0, "reader", 0, 1), (2, 0, "trainer", 1, 2))

    def test_a_c10d_job_of_both_is_refused_at_once(self):
        host = self.start([PYTHON, "-m", "torch.distributed.run", "--nnodes=2", "--rdzv-backend=c10d", "--rdzv-id=job7",
                           f"--rdzv-endpoint=127.0.0.1:{self.port}", self.worker, self.records])
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    break
            self.assertIsNone(host.poll())
            time.sleep(0.05)
        began = time.monotonic()
        ours = self.start([DDP_RUN, "--nnodes=2", "--rdzv-backend=c10d", "--rdzv-id=job7",
                           f"--rdzv-endpoint=127.0.0.1:{self.port}", self.worker, self.records])
        out, err = ours.communicate(timeout=PATIENCE)
        self.assertLess(time.monotonic() - began, 30)
        self.assertEqual((ours.returncode, out), (1, ""))
        self.assertEqual(len(err.splitlines()), 1, err)
        self.assertIn("torchrun", err)


if __name__ == "__main__":
    unittest.main()
