"""Every option of torchrun and torch.distributed.launch exists in ddp-run, and what torchrun takes for it, cut short or not, means the same."""

import json
import os
import subprocess
import unittest

from support import DDP_RUN, LEAVE, PYTHON, need_torch

need_torch()

# The parser of torch.distributed.launch is torchrun's and one flag more.
ASK = """
import argparse, json
from torch.distributed import launch
argparse.ArgumentParser.parse_args = lambda parser, _: parser
print(json.dumps([[action.option_strings, action.nargs != 0] for action in launch.parse_args([])._actions]))
"""
ACTIONS = json.loads(subprocess.run([PYTHON, "-c", ASK + LEAVE], capture_output=True, text=True, timeout=240, check=True).stdout)
SPELLINGS = [name for names, _ in ACTIONS for name in names]

TAKEN = ["--nnodes=1:1", "--nnodes= 1", "--nproc-per-node=02", "--nproc-per-node= 2", "--nproc-per-node=auto", "--nproc-per-node=cpu",
         "--rdzv-endpoint=[::1]:1234", "--rdzv-endpoint=:1234", "--rdzv-conf=a=b, c=d", "--rdzv-conf=", "--max-restarts= 3",
         "--monitor-interval=1e-3", "--start-method=forkserver", "--event-log-handler=console", "--role=", "--redirects=0:1,1:2",
         "--tee=0:1,0:2", "--local-ranks-filter= 0, 1", "--node-rank=0", "--master-port=0", "--local-addr=", "--shutdown-timeout= 3",
         "--signals-to-handle=SIGTERM, SIGINT", "--signals-to-handle=SIGUSR1", "--log-line-prefix-template=${",
         "--duplicate-stdout-filters=a,,b", "--duplicate-stderr-filters=", "--log-dir=/dev/null"]
REFUSED = ["--nnodes=0", "--nnodes=2:1", "--nnodes=a", "--nnodes=1:1:1", "--nproc-per-node=", "--nproc-per-node=1.0",
           "--nproc-per-node=AUTO", "--rdzv-conf=a", "--rdzv-conf==b", "--max-restarts=x", "--max-restarts=1.5",
           "--monitor-interval=x", "--start-method=x", "--redirects=4", "--redirects=0:4", "--redirects=0:1,", "--tee=x",
           "--local-ranks-filter=a", "--local-ranks-filter=0,", "--node-rank=x", "--master-port=x", "--logs-specs=x",
           "--numa-binding=x", "--shutdown-timeout=x", "--rdzv-conf=a="]
ASK_TAKEN = """
import json, sys
from torch.distributed.run import config_from_args, parse_args

def takes(option):
    try:
        config_from_args(parse_args([option, "--no-python", "/bin/true"]))
    except (Exception, SystemExit):
        return False
    return True

print(json.dumps([option for option in json.loads(sys.argv[1]) if takes(option)]))
"""


def understood(*arguments):
    """The option that an error names: here each gets no value, or one that it does not take."""
    job = subprocess.run([DDP_RUN, *arguments], capture_output=True, text=True, timeout=240, check=False)
    return job.stderr.removeprefix("error: ").split(" ")[0]


def options():
    """(name with dashes, takes a value) of each long option; both spellings are one."""
    for names, with_value in ACTIONS:
        long = [name for name in names if name.startswith("--") and "_" not in name]
        if long and long[0] != "--help":
            yield long[0], with_value


class Options(unittest.TestCase):
    def check(self, written, name, with_value):
        self.assertEqual(understood(written if with_value else written + "=x"), name, written)

    def test_every_option_is_there_in_both_spellings(self):
        seen = list(options())
        self.assertGreater(len(seen), 25)
        self.assertIn(("--use-env", False), seen)
        for name, with_value in seen:
            self.check(name, name, with_value)
            self.check("--" + name[2:].replace("-", "_"), name, with_value)

    def test_what_argparse_takes_cut_short_means_the_same(self):
        known = dict(options())
        checked = 0
        for name in known:
            for spelled in {name, "--" + name[2:].replace("-", "_")}:
                for length in range(3, len(spelled)):
                    cut = spelled[:length]
                    if len([option for option in SPELLINGS if option.startswith(cut)]) == 1:
                        self.check(cut, name, known[name])
                        checked += 1
        self.assertGreater(checked, 100)

    def test_what_argparse_calls_ambiguous_is_refused(self):
        cuts = {name[:length] for name in SPELLINGS for length in range(3, len(name))} - set(SPELLINGS)
        ambiguous = [cut for cut in cuts if len([option for option in SPELLINGS if option.startswith(cut)]) > 1]
        self.assertIn("--nproc", ambiguous)
        for cut in ambiguous:
            job = subprocess.run([DDP_RUN, "--dry-run", cut, "true"], capture_output=True, text=True, timeout=240, check=False)
            self.assertEqual(job.returncode, 2, cut + ": " + job.stdout)
            self.assertRegex(job.stderr, r"is ambiguous: --|write --", cut)

    def test_values_are_taken_and_refused_by_both(self):
        env = {name: value for name, value in os.environ.items() if not name.startswith("PET_")} | {"CUDA_VISIBLE_DEVICES": ""}
        asked = subprocess.run([PYTHON, "-c", ASK_TAKEN + LEAVE, json.dumps(TAKEN + REFUSED)], capture_output=True, text=True, env=env,
                               timeout=240, check=True)
        self.assertEqual(json.loads(asked.stdout), TAKEN)
        for option in TAKEN + REFUSED:
            job = subprocess.run([DDP_RUN, "--dry-run", option, "--no-python", "/bin/true"], capture_output=True, text=True,
                                 env=env, timeout=240, check=False)
            self.assertEqual(job.returncode, 0 if option in TAKEN else 2, option + ": " + job.stderr)

    def test_a_flag_from_the_environment_takes_numbers(self):
        for value, printed in (("1", "0"), ("0", "1"), ("2", "0")):
            job = subprocess.run([DDP_RUN, "--dry-run", "--nproc_per_node=2", "/bin/true"], capture_output=True, text=True,
                                 env={**os.environ, "PET_VIRTUAL_LOCAL_RANK": value, "CUDA_VISIBLE_DEVICES": ""},
                                 timeout=240, check=False)
            # Without GPUs --virtual-local-rank is refused: that it is on shows.
            self.assertEqual(job.returncode == 0, printed == "1", job.stderr)


if __name__ == "__main__":
    unittest.main()
