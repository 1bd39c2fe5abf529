"""--scheduler=sge under a real Grid Engine of two hosts: Debian's gridengine-master and gridengine-exec, started for this test."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import network_hosts as net
from support import DDP_RUN, PATIENCE

PROGRAMS = ("sge_qmaster", "sge_execd", "qconf", "qsub", "qrsh")
PACKAGE = Path("/var/lib/gridengine")
if os.geteuid() != 0 or not PACKAGE.exists() or any(not shutil.which(name) for name in PROGRAMS):
    print("apt-get install gridengine-master gridengine-exec gridengine-client, and be root")
    print("[skipped] all of it: no Grid Engine here")
    sys.exit(0)

HOSTS = ("node0", "node1")
ENVIRONMENT = """pe_name ddp
slots 99
user_lists NONE
xuser_lists NONE
start_proc_args NONE
stop_proc_args NONE
allocation_rule 2
control_slaves TRUE
job_is_first_task FALSE
urgency_slots min
accounting_summary FALSE
qsort_args NONE
"""


class GridEngine(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="sge-"))
        cls.folder.chmod(0o755)
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.addClassCleanup(net.tear_down_hosts, len(HOSTS))
        wrong = net.set_up_hosts(len(HOSTS))
        if wrong:
            raise unittest.SkipTest(wrong)
        net.name_hosts(len(HOSTS), {name: net.address(i) for i, name in enumerate(HOSTS)})
        cls.root = cls.folder / "root"
        shutil.copytree(PACKAGE, cls.root, symlinks=True)
        cls.environment = {**os.environ, "SGE_ROOT": str(cls.root), "SGE_CELL": "default", "SGE_QMASTER_PORT": "26444",
                           "SGE_EXECD_PORT": "26445", "PATH": os.environ["PATH"] + ":/usr/sbin"}
        spool = cls.root / "spool"
        for name in ("qmaster/job_scripts", "spooldb", "execd"):
            (spool / name).mkdir(parents=True)
        common = cls.root / "default/common"
        text = (common / "bootstrap").read_text().replace("/var/spool/gridengine", str(spool))
        (common / "bootstrap").write_text(text.replace("sgeadmin", "root"))
        (common / "act_qmaster").write_text("node0\n")
        cls.addClassCleanup(cls.stop)
        cls.run_on(0, "/usr/share/gridengine/scripts/init_cluster", cls.root, "default", spool / "spooldb", "root")
        cls.run_on(0, "sge_qmaster")
        cls.until("master", lambda: cls.run_on(0, "qconf", "-sconf", check=False).returncode == 0)
        settings = cls.run_on(0, "qconf", "-sconf").stdout.replace("/var/spool/gridengine", str(spool))
        cls.configure("-Mconf", settings.replace("_uid                      1000", "_uid 0").replace(
            "_gid                      1000", "_gid 0"), "global")
        for i, name in enumerate(HOSTS):
            cls.run_on(0, "qconf", "-ah", name, check=False)
            cls.run_on(0, "qconf", "-as", name)
            cls.run_on(i, "sge_execd")
        cls.configure("-Ap", ENVIRONMENT)
        cls.configure("-Ahgrp", "group_name @allhosts\nhostlist node0 node1\n")
        queue = cls.run_on(0, "qconf", "-aq", "ddp.q", EDITOR="cat", check=False).stdout
        words = {"hostlist": "@allhosts", "pe_list": "ddp", "slots": "2", "shell": "/bin/sh", "load_thresholds": "NONE"}
        cls.configure("-Aq", "".join(f"{line.split()[0]} {words[line.split()[0]]}\n" if line.split()[:1] and
                                     line.split()[0] in words else f"{line}\n" for line in queue.splitlines()))

    @classmethod
    def stop(cls):
        for i in range(len(HOSTS)):
            pids = subprocess.run(["ip", "netns", "pids", net.host(i)], capture_output=True, text=True).stdout.split()
            net.send_to_all(map(int, pids), 9)

    @classmethod
    def run_on(cls, i, *command, check=True, **environment):
        """A command on host i, which has that name."""
        run = subprocess.run(["ip", "netns", "exec", net.host(i), "unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"',
                              HOSTS[i], *map(str, command)], env={**cls.environment, **environment}, cwd=cls.folder,
                             stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE)
        if check and run.returncode != 0:
            raise AssertionError(f"{command}: {run.returncode}\n{run.stdout}{run.stderr}")
        return run

    @classmethod
    def configure(cls, option, text, name="file"):
        (cls.folder / name).write_text(text)
        cls.run_on(0, "qconf", option, cls.folder / name)

    @classmethod
    def until(cls, what, condition):
        end = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > end:
                raise AssertionError(what)
            time.sleep(0.05)

    def submit(self, program):
        """(exit code, output) of a job whose script starts ddp-run once."""
        script, output = self.folder / "job.sh", self.folder / "output"
        script.write_text(f"export DDP_SSH='qrsh -inherit' OMP_NUM_THREADS=1\nexec {DDP_RUN} --scheduler=sge {program}\n")
        output.unlink(missing_ok=True)
        run = self.run_on(0, "qsub", "-sync", "y", "-pe", "ddp", "4", "-j", "y", "-cwd", "-o", output, "-S", "/bin/sh", script,
                          check=False)
        return run.returncode, output.read_text() if output.exists() else run.stdout + run.stderr

    def test_the_job_s_hosts_form_one_job(self):
        code, output = self.submit("sh -c 'echo rank=$RANK of $WORLD_SIZE on $(hostname)'")
        self.assertEqual(code, 0, output)
        for rank in range(4):
            self.assertIn(f"rank={rank} of 4 on node", output)
        self.assertEqual(output.count(" on node0"), 2, output)
        self.assertIn("(PE_HOSTFILE)", output)

    def test_a_failure_ends_the_job_with_its_code(self):
        code, output = self.submit("sh -c '[ $RANK = 3 ] && exit 9; exec sleep 1000'")
        self.assertEqual(code, 9, output)
        self.assertIn("first failure: rank 3", output)


if __name__ == "__main__":
    unittest.main()
