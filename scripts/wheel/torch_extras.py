"""For the wheel's metadata: the extras `trainer` and `object-stores` name the torch and the pyarrow that it is built with.

Looks where scripts/cmake/ looks: TORCH_ROOT and ARROW_ROOT, the environment that builds, an active one, the project's
.venv, the Python on PATH.
"""

import os
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def _folders(package, root):
    if root:
        yield from (Path(root), Path(root) / package)
        return
    on_path = shutil.which("python3")
    prefixes = [sys.prefix, os.environ.get("VIRTUAL_ENV"), os.environ.get("CONDA_PREFIX"), ROOT / ".venv",
                on_path and Path(on_path).parents[1]]
    for prefix in filter(None, prefixes):
        yield from Path(prefix).glob(f"lib/python3*/site-packages/{package}")


def _version(package, root, library, file, pattern):
    for folder in _folders(package, root):
        if next(folder.glob(library), None) and (folder / file).is_file():
            found = re.search(pattern, (folder / file).read_text())
            if found:
                return found[1]
    return None


def dynamic_metadata(_field, _settings=None):
    torch = _version("torch", os.environ.get("TORCH_ROOT"), "lib/libtorch_cpu.so", "version.py",
                     r"__version__ = '(\d+\.\d+)")
    arrow = _version("pyarrow", os.environ.get("ARROW_ROOT"), "libarrow_s3.so.*", "include/arrow/util/config.h",
                     r'ARROW_VERSION_STRING "(\d+)\.')
    extras = {"trainer": [f"torch=={torch}.*"] if torch else []}
    if arrow:
        extras["object-stores"] = [f"pyarrow=={arrow}.*"]
    return extras
