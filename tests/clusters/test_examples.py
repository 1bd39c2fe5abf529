"""The scripts below examples/ with a srun, an mpirun and an ssh that run everything here."""

import re
import shutil
import subprocess
import unittest

from support import EXAMPLES, JOB, ROOT, SCONTROL, SRUN, ExampleTest

OPEN_MPI = """#!/bin/bash
[ "$1" = --version ] && { echo "mpirun (Open MPI) 4.1.4"; exit 0; }
echo "$*" >> "$NOTES.mpirun"
while [ "$1" != ddp-run ]; do [ "$1" = -x ] && case $2 in *=*) export "$2" ;; esac; shift; done
pids=()
for rank in 0 1; do
  OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_LOCAL_SIZE=1 PMIX_NAMESPACE=job@1 "$@" &
  pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid" || exit; done
"""
MPICH = """#!/bin/bash
[ "$1" = --version ] && { echo "HYDRA build details:"; exit 0; }
echo "$*" >> "$NOTES.mpirun"
while [ "$1" != ddp-run ]; do [ "$1" = -genv ] && export "$2=$3"; shift; done
pids=()
for rank in 0 1; do PMI_SIZE=2 PMI_RANK=$rank MPI_LOCALNRANKS=1 "$@" & pids+=($!); done
for pid in "${pids[@]}"; do wait "$pid" || exit; done
"""
SSH = '#!/bin/sh\nfor word; do last=$word; done\nexec /bin/sh -c "$last"\n'


def job(number):
    return {**JOB, "SLURM_JOB_ID": str(number)}


class Scripts(unittest.TestCase):
    @unittest.skipUnless(shutil.which("shellcheck"), "[skipped] shellcheck is not installed")
    def test_shellcheck_finds_nothing(self):
        for script in sorted([*EXAMPLES.rglob("*.sh"), *EXAMPLES.rglob("*.sbatch")]):
            found = subprocess.run(["shellcheck", str(script)], capture_output=True, text=True)
            self.assertEqual(found.returncode, 0, found.stdout)

    def test_options_of_ddp_run_in_the_examples_exist(self):
        known = set(re.findall(r"--([a-z-]+)", (ROOT / "tests/launcher/cli/help.golden").read_text()))
        foreign = {"config", "nodes", "no-kill", "wait", "requeue", "open-mode", "signal", "time", "kill-on-bad-exit",
                   "job-name", "ntasks-per-node", "gpus-per-node", "cpus-per-task", "map-by", "version", "hostfile"}
        for file in [*EXAMPLES.rglob("*.sh"), *EXAMPLES.rglob("*.sbatch"), *EXAMPLES.rglob("*.yaml")]:
            for option in re.findall(r"(?<!\S)--([a-z][a-z-]+)", file.read_text()):
                self.assertIn(option, known | foreign, file)


class Slurm(ExampleTest):
    def setUp(self):
        super().setUp()
        self.fake("srun", SRUN)
        self.fake("scontrol", SCONTROL)

    def test_the_job_has_ranks_on_all_nodes(self):
        run = self.run_example("bash", EXAMPLES / "slurm/train.sbatch", "max_epochs=1", **job(4711))
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual([worker["rank"] for worker in self.noted()], ["0", "1"])
        self.assertEqual({worker["id"] for worker in self.noted()}, {"4711.0"})
        self.assertEqual({worker["args"] for worker in self.noted()},
                         {"--config configs/quickstart.yaml max_epochs=1"})
        self.assertIn("from Slurm: --nnodes=2 (SLURM_STEP_NUM_NODES)", run.stderr)

    def test_a_preempted_job_puts_itself_back_into_the_queue(self):
        (self.folder / "notes.outcome").write_text("75")
        run = self.run_example("bash", EXAMPLES / "slurm/train.sbatch", **job(4712))
        self.assertEqual(run.returncode, 75, run.stderr)
        self.assertEqual((self.folder / "notes.scontrol").read_text(), "requeue 4712\n")

    def test_a_failed_job_does_not(self):
        (self.folder / "notes.outcome").write_text("76")
        run = self.run_example("bash", EXAMPLES / "slurm/train.sbatch", **job(4713))
        self.assertEqual(run.returncode, 76, run.stderr)
        self.assertFalse((self.folder / "notes.scontrol").exists())

    def test_the_elastic_job_meets_dynamically(self):
        run = self.run_example("bash", EXAMPLES / "slurm/elastic.sbatch", **job(4714), PET_NNODES="")
        self.assertIn("--nnodes=2:4 --rdzv-backend=c10d", (self.folder / "notes.srun").read_text())
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual({worker["world"] for worker in self.noted()}, {"2"})

    def test_without_a_launcher_the_tasks_know_where_to_meet(self):
        self.fake("trainer", '#!/bin/sh\necho "at $MASTER_ADDR" >> "$NOTES"\n')
        run = self.run_example("bash", EXAMPLES / "slurm/without_launcher.sbatch", **job(4715))
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(self.notes.read_text(), "at 127.0.0.1\n" * 2)
        self.assertEqual((self.folder / "notes.scontrol").read_text(), "show hostnames 127.0.0.[1,1]\n")


class Mpi(ExampleTest):
    def run_with(self, mpirun, hosts):
        self.fake("mpirun", mpirun)
        (self.folder / "hosts").write_text(hosts)
        run = self.run_example("sh", EXAMPLES / "mpi/train.sh", self.folder / "hosts", "x=1", WORKERS="2")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual([worker["rank"] for worker in self.noted()], ["0", "1", "2", "3"])
        self.assertEqual(self.noted()[0]["args"], "--config configs/quickstart.yaml x=1")
        return (self.folder / "notes.mpirun").read_text()

    def test_open_mpi(self):
        command = self.run_with(OPEN_MPI, "# hosts\n127.0.0.1 slots=2\n127.0.0.2 slots=2\n")
        self.assertIn("--map-by ppr:1:node -x MASTER_ADDR=127.0.0.1", command)
        self.assertEqual({worker["id"] for worker in self.noted()}, {"job-1"})

    def test_mpich(self):
        command = self.run_with(MPICH, "127.0.0.1:2\n127.0.0.2:2\n")
        self.assertIn("-ppn 1 -n 2 -genv MASTER_ADDR 127.0.0.1", command)


class Ssh(ExampleTest):
    def test_the_hosts_of_the_file_form_one_job(self):
        self.fake("ssh", SSH)
        hosts = self.folder / "hosts"
        hosts.write_text("127.0.0.1 slots=1\n127.0.0.2 slots=2\n")
        run = self.run_example("sh", EXAMPLES / "ssh/train.sh", "x=1", HOSTFILE=str(hosts), NCCL_DEBUG="INFO")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual([(worker["rank"], worker["local"]) for worker in self.noted()],
                         [("0", "0"), ("1", "0"), ("2", "1")])
        self.assertEqual(self.noted()[0]["args"], "--config configs/quickstart.yaml x=1")


if __name__ == "__main__":
    unittest.main()
