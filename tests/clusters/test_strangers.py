"""Strangers at the ports of a job, and nodes that misbehave: real processes with 1,024 file descriptors, real sockets."""

import contextlib
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

import wire_peer
from ports import free_port
from support import DDP_RUN, PATIENCE, ROOT
from wire_peer import Agent, Closed, Host, flood, greeting, is_closed, raw

TOKEN = b"0123456789abcdef0123456789abcdef"
TCP_STORE = b"\x00\xce\xf7\x85\x3c"
FLOOD = 1  # seconds of attack before the host is looked at
MEMORY_MIB = 40  # of a host under attack; an idle one has 3 to 5


def setUpModule():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (8192 if hard == resource.RLIM_INFINITY else min(hard, 8192), hard))


def few_descriptors():
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))


class Node:
    """A ddp-run with its output in a file."""

    def __init__(self, folder, name, options, worker):
        self.log = folder / f"{name}.log"
        output = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PET_", "SLURM_", "OMPI_"))}
        self.process = subprocess.Popen(
            [DDP_RUN, "--nproc-per-node=1", "--no-python", *options, "sh", "-c", worker], stdin=subprocess.DEVNULL,
            stdout=output, stderr=subprocess.STDOUT, env={**environment, "TMPDIR": str(folder)},
            start_new_session=True, preexec_fn=few_descriptors)
        os.close(output)

    def text(self):
        return self.log.read_text()

    def wait_for(self, text):
        end = time.monotonic() + PATIENCE
        while text not in self.text():
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"did not see {text!r} in:\n{self.text()}")
            time.sleep(0.02)

    def agent(self):
        """The pid of the process that hosts: the guardian's child."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0])

    def mib(self):
        status = Path(f"/proc/{self.agent()}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 1024

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.agent()}/fd"))

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


class StrangersTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.port = free_port()
        self.go = self.folder / "go"  # workers end when it is there
        self.held = []
        self.addCleanup(lambda: [one.close() for one in self.held])
        (self.folder / "token").write_bytes(TOKEN + b"\n")
        (self.folder / "token").chmod(0o600)
        self.with_token = f"--rdzv-token-file={self.folder}/token"
        self.learn_hello()

    def learn_hello(self):
        """A host made from the page refuses a real agent, and keeps its hello."""
        if Agent.template:
            return
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(20)
            endpoint = f"127.0.0.1:{server.getsockname()[1]}"
            node = self.node("refused", "--nnodes=1:2", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}",
                             "--rdzv-conf=is_host=0")
            host = Host(server)
            Agent.template = host.expect("hello")
            host.send({"type": "refused", "why": "because of a test"})
            self.assertEqual(node.process.wait(PATIENCE), 1)
            self.assertIn("refused this node: because of a test", node.text())
            host.close()

    def node(self, name, *options):
        worker = f'echo "runs in $WORLD_SIZE"; while [ ! -e {self.go} ]; do sleep 0.1; done'
        node = Node(self.folder, name, [*options, "--rdzv-id=job"], worker)
        self.addCleanup(node.end)
        return node

    def elastic(self, name, *options, nnodes="1:2"):
        return self.node(name, f"--nnodes={nnodes}", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{self.port}", *options)

    def fixed(self, rank, *options):
        return self.node(f"node{rank}", "--nnodes=2", f"--node-rank={rank}", "--master-addr=127.0.0.1",
                         f"--master-port={self.port}", *options)

    def hold(self, count, data=b"", port=None):
        for _ in range(count):
            try:
                self.held.append(raw(port or self.port, data))
            except OSError:  # it is full: also an answer
                break

    def finish(self, *nodes):
        self.go.touch()
        self.assertEqual([node.process.wait(PATIENCE) for node in nodes], [0] * len(nodes))

    def check_budget(self, node):
        self.assertLess(node.mib(), MEMORY_MIB)
        self.assertLess(node.descriptors(), 700)

    # ---- the protocol, as the page describes it

    def test_an_implementation_made_from_the_page_takes_part_in_a_job(self):
        for token in (b"", TOKEN):
            with self.subTest(token=token):
                self.port = free_port()
                host = self.elastic(f"host{len(token)}", *([self.with_token] if token else []))
                host.wait_for("runs in 1")
                peer = Agent(self.port, token)
                peer.hello()
                self.assertEqual(peer.expect("welcome")["resumed"], False)
                peer.send({"type": "join", "port": 1})
                proposed = peer.expect("round")
                self.assertEqual((proposed["group_world_size"], proposed["world_size"]), (2, 2))
                peer.send({"type": "accepted", "epoch": proposed["epoch"]})
                self.assertEqual(peer.expect("go")["epoch"], proposed["epoch"])
                host.wait_for("runs in 2")
                peer.send({"type": "ended", "failures": [], "stopped": False, "preempted": False})
                self.go.touch()
                self.assertTrue(peer.expect("verdict")["over"])
                peer.close()
                self.assertEqual(host.process.wait(PATIENCE), 0)
                self.go.unlink()

    def test_the_page_has_every_field_of_every_message(self):
        source = (ROOT / "launcher/rendezvous/wire/control_messages.cc").read_text()
        types = re.search(r"kTypes\{([^}]*)\}", source)[1]
        names = set(re.findall(r'io\.[a-z]+\("([a-z_0-9]+)"', source)) | set(re.findall(r'"([a-z]+)"', types))
        self.assertGreater(len(names), 60)
        page = (ROOT / "docs/wire-protocol.md").read_text()
        self.assertEqual([name for name in sorted(names) if f"`{name}`" not in page], [])

    # ---- without the token

    def test_without_the_token_nobody_ends_a_job_or_learns_of_it(self):
        host = self.elastic("host", self.with_token)
        host.wait_for("runs in 1")
        for wrong in (b"", TOKEN[:-1]):
            with self.assertRaises(Closed):
                Agent(self.port, wrong)
        # One that does not care whether the host knows the token gets a nonce and a proof, whatever it says then.
        own = greeting()
        one = raw(self.port, own)
        answer = one.recv(58, socket.MSG_WAITALL)
        self.assertEqual(len(answer), 58)
        one.sendall(os.urandom(32) + b"\0\0\0\x1d" + b'{"type":"leave","signal":15}' + os.urandom(32))
        self.assertTrue(is_closed(one, PATIENCE))
        host.wait_for("did not prove that it knows this job's token")
        self.finish(host)

    def test_a_node_of_another_job_learns_nothing_and_is_in_the_log(self):
        host = self.elastic("host")
        host.wait_for("runs in 1")
        peer = Agent(self.port)
        peer.send({"type": "status", "id": "x", "run_id": "other", "epoch": 9, "hosts": True, "address": "", "port": 1})
        peer.hello(run_id="other")
        answer = peer.expect("refused", "status")
        self.assertEqual(answer["type"], "refused")
        self.assertNotIn("job is job", answer["why"])
        self.assertIn("--rdzv-id=other", answer["why"])
        host.wait_for("a node with --rdzv-id=other")
        self.finish(host)

    def test_mixed_versions_name_both(self):
        host = self.elastic("host")
        host.wait_for("runs in 1")
        one = raw(self.port, greeting(version=4))
        self.assertEqual(one.recv(100, socket.MSG_WAITALL), wire_peer.MAGIC + b"\0\3")
        host.wait_for("version 4 of the rendezvous protocol")
        self.finish(host)
        # The other way round: the host is newer.
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.port = server.getsockname()[1]
            node = self.elastic("node", "--rdzv-conf=is_host=0")
            connection = server.accept()[0]
            connection.sendall(wire_peer.MAGIC + b"\0\4")
            self.assertEqual(node.process.wait(PATIENCE), 1)
            self.assertRegex(node.text(), r"error: .* version 4 of the rendezvous protocol, this one .* version 3; install")
            connection.close()

    # ---- connections that take up room

    def test_connections_that_are_held_open_keep_no_node_out(self):
        for start in (b"", b"DDP-RUN/", greeting(), TCP_STORE[:3], b"DDP-RUN1" + bytes(16)):
            with self.subTest(start=start[:10]):
                self.port = free_port()
                host = self.elastic("host", self.with_token)
                host.wait_for("runs in 1")
                self.hold(1500, start)
                self.check_budget(host)
                node = self.elastic("node", self.with_token)
                node.wait_for("runs in 2")
                host.wait_for("runs in 2")
                self.finish(host, node)
                self.go.unlink()
                for one in self.held:
                    one.close()
                self.held.clear()

    def test_a_static_job_forms_among_connections_of_all_kinds(self):
        first = self.fixed(0)
        while True:
            try:
                self.held.append(raw(self.port, TCP_STORE))
                break
            except OSError:
                time.sleep(0.05)
        for data in (TCP_STORE, b"", b"DDP-RUN/", greeting()):
            self.hold(400, data)
        self.check_budget(first)
        second = self.fixed(1)
        first.wait_for("runs in 2")
        second.wait_for("runs in 2")
        self.finish(first, second)

    def test_clients_of_the_store_are_served_among_connections_that_ask_nothing(self):
        ping = TCP_STORE + b"\x0d" + b"nonc"
        nodes = [self.fixed(rank) for rank in (0, 1)]
        for node in nodes:
            node.wait_for("runs in 2")
        for data in (TCP_STORE, TCP_STORE + b"\x01" + (100).to_bytes(8, "little") + b"half a key"):
            self.hold(1500, data)
            client = raw(self.port, ping)
            self.held.append(client)
            self.assertEqual(client.recv(4, socket.MSG_WAITALL), b"nonc")
        self.assertLess(nodes[0].descriptors(), 700)
        self.finish(*nodes)

    def test_the_sockets_of_nodes_that_do_not_host_are_bounded_too(self):
        host = self.elastic("host", self.with_token)
        host.wait_for("runs in 1")
        node = self.elastic("node", self.with_token)
        node.wait_for("runs in 2")
        inodes = set()
        for fd in os.listdir(f"/proc/{node.agent()}/fd"):
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                inodes.add(os.readlink(f"/proc/{node.agent()}/fd/{fd}"))
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        ports = [int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in inodes]
        self.assertEqual(len(ports), 1)
        self.hold(1500, greeting(), port=ports[0])
        self.check_budget(node)
        answer = Agent(ports[0], TOKEN)
        answer.send({"type": "status", "id": "x", "run_id": "job", "epoch": -1, "hosts": False, "address": "", "port": 0})
        self.assertEqual(answer.expect("status")["hosts"], False)
        # It takes over under attack.
        os.kill(host.agent(), signal.SIGKILL)
        node.wait_for("runs in 1")
        self.finish(node)

    def test_a_slow_handshake_ends_after_five_seconds(self):
        host = self.elastic("host")
        host.wait_for("runs in 1")
        began = time.monotonic()
        slow = raw(self.port)
        try:
            for byte in greeting():
                slow.sendall(bytes([byte]))
                if is_closed(slow, 1):
                    break
        except OSError:
            pass
        silent = Agent(self.port)  # proves itself, and says no hello
        self.assertLess(time.monotonic() - began, 15)
        self.assertTrue(is_closed(silent.socket, PATIENCE))
        self.finish(host)

    # ---- floods

    def test_a_flood_makes_the_host_neither_grow_nor_forget_its_workers(self):
        alive = b'{"type":"alive","received":0}'
        for kind in ("garbage", "endless frame", "messages", "questions", "deep JSON", "large frames"):
            with self.subTest(kind=kind):
                self.port = free_port()
                host = self.elastic("host")
                host.wait_for("runs in 1")
                threads = [threading.Thread(target=self.attack, args=(kind, alive)) for _ in range(3)]
                for thread in threads:
                    thread.start()
                time.sleep(FLOOD)
                self.check_budget(host)  # under attack; its worker cannot have ended yet
                began = time.monotonic()
                self.go.touch()  # the worker ends: it takes its agent no longer than usual to notice
                self.assertEqual(host.process.wait(PATIENCE), 0)
                self.assertLess(time.monotonic() - began, 20)
                for thread in threads:
                    thread.join()
                self.go.unlink()

    def attack(self, kind, alive):
        """Floods the host until it is gone, again where it closes the connection at once."""
        try:
            while kind == "garbage":
                with raw(self.port) as one:
                    flood(one, os.urandom(1 << 16), PATIENCE)
            while kind == "endless frame":
                peer = Agent(self.port)
                peer.hello()
                with peer.socket:
                    flood(peer.socket, b"\0\x0f\xff\xff" + bytes(1 << 16), PATIENCE)
            peer = Agent(self.port)
            if kind == "questions":
                question = {"type": "status", "id": "x", "run_id": "job", "epoch": -1, "hosts": False, "address": "", "port": 0}
                return [flood_sealed(peer, question, PATIENCE)]
            peer.hello()
            if kind == "deep JSON":
                return flood_sealed(peer, b"[" * 500_000, PATIENCE)
            if kind == "large frames":
                return flood_sealed(peer, {"type": "note", "text": "x" * 4000, "more": ["y" * 100] * 8000}, PATIENCE)
            return flood_sealed(peer, alive, PATIENCE)
        except (Closed, OSError):
            return None

    def test_what_a_node_can_make_the_host_hold_is_bounded(self):
        host, node = self.elastic("host", nnodes="2:2"), self.elastic("node", nnodes="2:2")
        host.wait_for("runs in 2")
        spare = Agent(self.port)
        spare.hello(min_nodes=2)
        spare.expect("welcome")
        # Each join of a spare is answered; it reads and confirms nothing.
        flood_sealed(spare, {"type": "join", "port": 1}, 6)
        self.check_budget(host)
        self.finish(host, node)


def flood_sealed(peer, message, seconds):
    """Sends the message again and again with valid MACs, without reading."""
    peer.socket.settimeout(1)
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            peer.socket.sendall(b"".join(peer.frame(message) for _ in range(64)))
    except OSError:
        pass


if __name__ == "__main__":
    unittest.main()
