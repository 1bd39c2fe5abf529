"""Hosts of their own for tests: network namespaces with addresses and links, on one switch. Needs root and ip(8)."""

import collections
import os
import re
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DDP_RUN = os.environ.get("DDP_RUN", ROOT / "build/release/bin/ddp-run")
PATIENCE = 180
NAME = f"d{os.getpid() % 100000}"
SWITCH = f"{NAME}s"
NOBODY = "02:00:00:00:00:99"  # packets to this link address reach no host
CONF = "keep_alive_interval=1,keep_alive_max_attempt=2,last_call_timeout=2"


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True, timeout=60)


def host(i):
    return f"{NAME}h{i}"


def address(i):
    return f"10.213.7.{i + 1}"


def tear_down_hosts(count=4):
    for i in range(count):
        ip("netns", "del", host(i))
        shutil.rmtree(f"/etc/netns/{host(i)}", ignore_errors=True)
    ip("netns", "del", SWITCH)


def set_up_hosts(count=4):
    """One switch, in a namespace of its own, and the hosts; what is wrong, or None."""
    if not shutil.which("ip"):
        return "no ip(8)"
    commands = [["netns", "add", SWITCH], ["-n", SWITCH, "link", "add", "br0", "type", "bridge"],
                ["-n", SWITCH, "link", "set", "br0", "up"]]
    for i in range(count):
        at_host, at_switch = ["-n", host(i)], ["-n", SWITCH]
        commands += [["netns", "add", host(i)],
                     [*at_host, "link", "add", "eth0", "type", "veth", "peer", "name", f"p{i}", "netns", SWITCH],
                     [*at_switch, "link", "set", f"p{i}", "master", "br0", "up"],
                     [*at_host, "addr", "add", f"{address(i)}/24", "dev", "eth0"],
                     [*at_host, "link", "set", "eth0", "up"], [*at_host, "link", "set", "lo", "up"]]
    for command in commands:
        done = ip(*command)
        if done.returncode != 0:
            return f"ip {' '.join(command)}: {done.stderr.strip()}"
    return None


def wait_until_empty(i):
    """Until no process of a host is left: the agent of a node ends its workers when its front process is gone."""
    deadline = time.monotonic() + PATIENCE
    while pids := ip("netns", "pids", host(i)).stdout.split():
        if time.monotonic() > deadline:
            raise AssertionError(f"still there after {PATIENCE} s: " + subprocess.run(
                ["ps", "-o", "pid,stat,args", "-p", ",".join(pids)], capture_output=True, text=True, timeout=60).stdout)
        time.sleep(0.02)


def link(i, state):
    assert ip("-n", host(i), "link", "set", "eth0", state).returncode == 0


def cable(i, state):
    """At the switch: the host itself sees nothing but silence."""
    assert ip("-n", SWITCH, "link", "set", f"p{i}", state).returncode == 0


def cut(a, b):
    """Nothing passes between two hosts any more."""
    for one, other in ((a, b), (b, a)):
        assert ip("-n", host(one), "neigh", "replace", address(other), "lladdr", NOBODY, "dev", "eth0", "nud",
                  "permanent").returncode == 0


def heal(a, b):
    for one, other in ((a, b), (b, a)):
        ip("-n", host(one), "neigh", "del", address(other), "dev", "eth0")


def reset(i):
    """All established connections of a host end with RST, at both ends."""
    subprocess.run(["ip", "netns", "exec", host(i), "ss", "-K", "state", "established"], capture_output=True, check=True,
                   timeout=60)


def name_host(i, names):
    """/etc/hosts of a host: name -> its addresses. May be called again while programs run."""
    folder = Path(f"/etc/netns/{host(i)}")
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "hosts", "w") as file:  # in place: it is mounted
        file.write("127.0.0.1 localhost\n" + "".join(f"{one} {name}\n" for name, where in names.items() for one in where.split()))


def name_hosts(count, names):
    for i in range(count):
        name_host(i, names)


def processes_below(parents):
    """These processes and all that descend from them."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True, timeout=60).stdout
    children = collections.defaultdict(list)
    for line in listed.splitlines():
        pid, parent = map(int, line.split())
        children[parent].append(pid)
    found = list(parents)
    for one in found:
        found += children[one]
    return found


def send_to_all(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def lose_power(nodes):
    """Guardians, agents and workers end at once: none of them sees another one die, or has a last word. The kernels of the
    machines are still there and close the connections, unless the cable was pulled before."""
    stopped = set()
    guardians = [node.process.pid for node in nodes if node.process.poll() is None]
    while pids := set(processes_below(guardians)) - stopped:
        send_to_all(pids, signal.SIGSTOP)
        stopped |= pids
    send_to_all(stopped, signal.SIGKILL)
    for node in nodes:
        node.process.wait(PATIENCE)


class Node:
    def __init__(self, i, nnodes, endpoint, *more, program, folder=None, conf=CONF, backend="c10d"):
        where = endpoint if ":" in endpoint or "," in endpoint else f"{endpoint}:29400"
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", host(i), str(DDP_RUN), f"--nnodes={nnodes}", f"--rdzv-backend={backend}",
             f"--rdzv-endpoint={where}", f"--rdzv-conf={conf}", *more, *program], cwd=folder,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        os.set_blocking(self.process.stdout.fileno(), False)
        self.text, self.read_to = "", 0

    def wait(self, pattern):
        """The next match, behind the last one."""
        deadline = time.monotonic() + PATIENCE
        while True:
            found = re.compile(pattern).search(self.text, self.read_to)
            if found:
                self.read_to = found.end()
                return found
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise AssertionError(f"no '{pattern}' in:\n{self.text}")
            data = self.process.stdout.read()
            if data == b"":
                raise AssertionError(f"ended without '{pattern}':\n{self.text}")
            self.text += data.decode(errors="replace")

    def up(self, world, round_):
        return self.wait(rf"up (\d+) of {world} round {round_} at (\S+) (\d+) (\d+)\n")

    def read(self):
        self.text += (self.process.stdout.read() or b"").decode(errors="replace")
        return self.text

    def wait_for_end(self):
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < deadline:
            if select.select([self.process.stdout], [], [], 0.1)[0]:
                self.read()
        self.read()
        if self.process.poll() is None:
            raise AssertionError(f"did not end:\n{self.text}")
        return self.process.returncode

    def kill(self):
        """All of the node, as when its machine loses power; see lose_power."""
        lose_power([self])

    def end(self):
        self.kill()
        self.process.stdout.close()
