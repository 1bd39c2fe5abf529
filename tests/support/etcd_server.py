"""A real etcd for tests: one server, or one of a cluster, on given addresses, which can be stopped, paused and started again."""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from ports import free_port


def missing():
    """What is lacking, or None."""
    lacking = [program for program in ("etcd", "etcdctl") if not shutil.which(program)]
    return f"no {' or '.join(lacking)} (Debian: etcd-server, etcd-client)" if lacking else None


class Etcd:
    """`cluster`: name -> address of all members, each in its own namespace (`inside`: the words before the command)."""

    def __init__(self, folder, name="e0", address="127.0.0.1", port=None, cluster=None, inside=(), tls=(), scheme="http"):
        self.folder, self.name, self.address, self.inside, self.tls = Path(folder) / name, name, address, list(inside), list(tls)
        self.port = port or free_port()
        self.peer_port = free_port() if not cluster else 2380
        members = cluster or {name: address}
        self.cluster = ",".join(f"{one}=http://{where}:{self.peer_port}" for one, where in members.items())
        self.scheme = scheme
        self.process = None
        self.start()

    @property
    def endpoint(self):
        return f"{self.address}:{self.port}"

    def start(self):
        client, peer = f"{self.scheme}://{self.endpoint}", f"http://{self.address}:{self.peer_port}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log = open(self.folder / "log", "ab")
        self.process = subprocess.Popen(
            [*self.inside, "etcd", "--name", self.name, "--data-dir", str(self.folder / "data"), "--listen-client-urls", client,
             "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
             "--initial-cluster", self.cluster, "--initial-cluster-state", "new", *self.tls],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, start_new_session=True,
            env={**os.environ, "ETCD_UNSUPPORTED_ARCH": os.uname().machine})

    def ctl(self, *words, check=True, flags=(), endpoint=None):
        done = subprocess.run([*self.inside, "etcdctl", f"--endpoints={endpoint or f'{self.scheme}://{self.endpoint}'}", *flags, *words],
                              capture_output=True, text=True, env={**os.environ, "ETCDCTL_API": "3"}, timeout=30)
        if check and done.returncode != 0:
            raise AssertionError(f"etcdctl {' '.join(words)}: {done.stderr}")
        return done.stdout

    def wait(self, flags=(), seconds=60):
        """Until it serves."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
                self.ctl("get", "--prefix", "/nothing", "--command-timeout=2s", flags=flags)
                return self
            time.sleep(0.1)
        raise AssertionError(f"etcd does not serve:\n{(self.folder / 'log').read_text()[-3000:]}")

    def stop(self, how=signal.SIGTERM):
        if self.process and self.process.poll() is None:
            os.killpg(self.process.pid, how)
            self.process.wait()
        self.log.close()

    def kill(self):
        self.stop(signal.SIGKILL)
