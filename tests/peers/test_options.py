"""Every option of torchrun exists in ddp-run, and what torchrun takes for it, cut short or not, means the same."""

import json
import os
import subprocess
import unittest

from support import DDP_RUN, PYTHON, need_torch

need_torch()

ASK = """
import json
from torch.distributed.run import get_args_parser
print(json.dumps([[action.option_strings, action.nargs != 0] for action in get_args_parser()._actions]))
"""
ACTIONS = json.loads(subprocess.run([PYTHON, "-c", ASK], capture_output=True, text=True, timeout=90, check=True).stdout)
SPELLINGS = [name for names, _ in ACTIONS for name in names]


def understood(*arguments):
    """The option that an error names: here each gets no value, or one that it does not take."""
    job = subprocess.run([DDP_RUN, *arguments], capture_output=True, text=True, timeout=60, check=False)
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

    def test_a_flag_from_the_environment_takes_numbers(self):
        for value, printed in (("1", "0"), ("0", "1"), ("2", "0")):
            job = subprocess.run([DDP_RUN, "--dry-run", "--nproc_per_node=2", "/bin/true"], capture_output=True, text=True,
                                 env={**os.environ, "PET_VIRTUAL_LOCAL_RANK": value, "CUDA_VISIBLE_DEVICES": ""},
                                 timeout=60, check=False)
            # Without GPUs --virtual-local-rank is refused: that it is on shows.
            self.assertEqual(job.returncode == 0, printed == "1", job.stderr)


if __name__ == "__main__":
    unittest.main()
