"""A real Slurm of several virtual nodes on this machine, in a folder of its own: Debian's slurm-wlm and munge."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from ports import free_port

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scontrol", "squeue", "sinfo")
START = 60  # seconds

CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmctldPort={port}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/linear
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SchedulerParameters=batch_sched_delay=0,sched_interval=1,requeue_delay=0
KillWait=5
MailProg=/bin/true
"""


def missing_programs():
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    return [name for name in PROGRAMS if not shutil.which(name, path=path)]


class LocalSlurm:
    """Nodes 127.0.0.2, 127.0.0.3, ...: names that resolve to themselves, as Slurm gives no others to its jobs."""

    def __init__(self, nodes):
        self.folder = Path(tempfile.mkdtemp(prefix="slurm-"))
        self.folder.chmod(0o755)
        self.nodes = [f"127.0.0.{i + 2}" for i in range(nodes)]
        self.daemons = []
        self.environment = {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf"),
                            "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"}
        try:
            self._write_config()
            self._start()
        except BaseException:
            self.stop()
            raise

    def _write_config(self):
        user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
        text = CONFIG.format(host=socket.gethostname(), user=user, folder=self.folder, port=free_port())
        for name in self.nodes:
            text += f"NodeName={name} NodeAddr=127.0.0.1 Port={free_port()} CPUs=2 State=UNKNOWN\n"
        text += f"PartitionName=all Nodes={','.join(self.nodes)} Default=YES MaxTime=INFINITE State=UP\n"
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "cgroup.conf").write_text("CgroupAutomount=no\n")
        (self.folder / "state").mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)

    def _daemon(self, *command):
        with open(self.folder / f"{Path(command[0]).name}-{len(self.daemons)}.out", "wb") as log:
            self.daemons.append(subprocess.Popen(command, env=self.environment, stdin=subprocess.DEVNULL, stdout=log,
                                                 stderr=log, start_new_session=True))

    def _start(self):
        at = self.folder
        self._daemon("munged", "--foreground", "--force", f"--socket={at}/munge.socket", f"--key-file={at}/munge.key",
                     f"--pid-file={at}/munge.pid", f"--log-file={at}/munge.log", f"--seed-file={at}/munge.seed")
        self._until("munged", lambda: (at / "munge.socket").exists())
        self._daemon("slurmctld", "-D", "-i")
        for name in self.nodes:
            (at / f"spool-{name}").mkdir()
            self._daemon("slurmd", "-D", "-N", name)
        self._until("all nodes", lambda: self.command("sinfo", "-h", "-t", "idle", "-o", "%D").stdout.strip()
                    == str(len(self.nodes)))

    def _until(self, what, condition):
        end = time.monotonic() + START
        while not condition():
            if time.monotonic() > end or any(one.poll() is not None for one in self.daemons):
                raise AssertionError(f"Slurm did not start ({what})\n{self.logs()}")
            time.sleep(0.05)

    def logs(self):
        return "\n".join(f"--- {file.name}\n{file.read_text(errors='replace')[-2000:]}"
                         for pattern in ("*.log", "*.out") for file in sorted(self.folder.glob(pattern)))

    def command(self, *words, timeout=120, **environment):
        return subprocess.run(words, env={**self.environment, **environment}, cwd=self.folder, capture_output=True,
                              text=True, timeout=timeout)

    def stop(self):
        for one in reversed(self.daemons):
            one.terminate()
        for one in self.daemons:
            try:
                one.wait(10)
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
