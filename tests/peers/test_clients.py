"""Training libraries under ddp-run and under torchrun: the same scripts, the same world, the same losses.

What trains undisturbed under torchrun is killed under ddp-run, restarted, and resumed by the library itself. Not under
torchrun as well: restarted workers may find addresses of the last round in its store and fail.
"""

import unittest

from support import PEERS, JobTest, TORCHRUN, need_torch

need_torch()


class Clients(JobTest):
    patience = 240  # their imports alone take ten seconds of CPU time a rank

    def results(self, launcher, script, *options, **variables):
        """The lines that the workers wrote in the end, sorted."""
        self.launcher = launcher
        folder = self.folder / f"checkpoints {len(list(self.folder.iterdir()))}"
        job = self.succeed("--standalone", "--nproc-per-node=2", *options, script, PYTHONPATH=PEERS, FOLDER=folder,
                           **variables)
        return sorted(line for line in job.out.splitlines() if line.startswith(("rank", "world")))

    def test_the_trainer_of_hugging_face_resumes_after_a_crash_with_the_losses_of_an_undisturbed_run(self):
        self.need("transformers", "accelerate")
        undisturbed = self.results(TORCHRUN, "hf_trainer.py")
        self.assertEqual(len(undisturbed), 1)
        self.assertRegex(undisturbed[0], r"^world 2 from none losses 1:\S+ .* 6:\S+$")
        crashed = self.results(JobTest.launcher, "hf_trainer.py", "--max-restarts=1", CRASH=1)
        self.assertEqual(crashed, [undisturbed[0].replace("from none", "from checkpoint-2")])

    def test_lightning_finds_its_ranks_and_resumes_after_a_crash_with_the_weights_of_an_undisturbed_run(self):
        self.need("lightning", "torchmetrics")
        undisturbed = self.results(TORCHRUN, "lightning_fit.py")
        self.assertRegex(undisturbed[0], r"^rank 0 of 2 by TorchElasticEnvironment: steps 0 to 12, mean loss [\d.]+, weights \[")
        self.assertRegex(undisturbed[1], r"^rank 1 of 2 by ")
        crashed = self.results(JobTest.launcher, "lightning_fit.py", "--max-restarts=1", CRASH=1)
        self.assertEqual(crashed, [line.replace("steps 0", "steps 4") for line in undisturbed])

    def test_accelerate_goes_on_from_a_distributed_checkpoint_after_a_crash(self):
        self.need("accelerate", "torchmetrics")
        undisturbed = self.results(TORCHRUN, "sharded_checkpoint.py")
        self.assertRegex(undisturbed[0], r"^rank 0 of 2 ended in attempt 0: mean loss [\d.]+$")
        crashed = self.results(JobTest.launcher, "sharded_checkpoint.py", "--max-restarts=1", CRASH=1)
        self.assertEqual(crashed, [line.replace("attempt 0", "attempt 1") for line in undisturbed])


if __name__ == "__main__":
    unittest.main()
