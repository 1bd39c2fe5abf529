"""Writes down whether torch takes this process for one of torchelastic's."""

import sys
from pathlib import Path

import torch.distributed as dist

Path(sys.argv[1]).write_text(str(dist.is_torchelastic_launched()))
