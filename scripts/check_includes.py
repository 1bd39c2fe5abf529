#!/usr/bin/env python3
"""Checks that the code looks only where it may: reads every #include of launcher/, trainer/ and tests/.

  check_includes.py [ROOT]     prints file:line: message for each wrong direction; exit 1 when there is one
"""

import re
import sys
from pathlib import Path

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:<([^>]+)>|"([^"]+)")')
SOURCES = {".h", ".hh", ".hpp", ".cc", ".cpp", ".inl"}

# trainer's rooms from left to right: a room sees itself and the rooms of smaller rank, never a sibling.
RANK = {"runtime": 0, "config": 1, "storage": 1, "data": 2, "model": 2, "optim": 2, "parallel": 2, "metrics": 2, "health": 2,
        "task": 3, "snapshot": 4, "run": 5, "app": 6}
MAIN_RANK = 7
# config's own rooms, likewise; config.h, the plain struct, is open to all of them.
CONFIG_RANK = {"yaml": 0, "keys": 1, "interpolation": 1, "override": 2, "compose": 3, "show": 4}

# Foreign headers and the only files that may see them; the first header pattern that fits decides.
# launcher/agent_store/ and launcher/c10d_rendezvous/ are built on c10d, but never linked into ddp-run.
MODULES = r"launcher/(agent_store|c10d_rendezvous)/"
FENCES = [
    (r"gloo/|.*ProcessGroupGloo", r"trainer/parallel/gloo_backend\.cc$", "only gloo_backend.cc sees gloo headers"),
    (r".*c10d/reducer", r"trainer/parallel/ddp\.cc$", "only ddp.cc sees reducer.hpp"),
    (r".*c10d/", rf"trainer/parallel/|{MODULES}|tests/", "only trainer/parallel/ sees c10d headers"),
    (r"arrow/", r"trainer/storage/arrow_folder\.cc$", "only arrow_folder.cc sees Arrow"),
    (r"nccl\.h$", r"trainer/parallel/", "only trainer/parallel/ sees NCCL"),
    (r"yaml-cpp/", r"trainer/config/yaml/", "only config/yaml/ sees yaml-cpp"),
    (r"cxxopts", r"launcher/option_values\.cc$|trainer/app/trainer_args\.cc$",
     "only option_values.cc and trainer_args.cc see cxxopts"),
    (r"(torch|ATen|c10|caffe2)/", rf"trainer/(?!config/)|{MODULES}|tests/(?!launcher/|config/)",
     "LibTorch is for trainer/ outside config/"),
]


def trainer_room(path):
    parts = path.split("/")
    return parts[1] if len(parts) > 2 else "main"


def room_error(file, header):
    """Own headers: which folder may look at which."""
    if file.startswith("launcher/"):
        if header.startswith("trainer/"):
            return "launcher never includes trainer"
        if re.match(r"launcher/agent(_policy)?\.", file) and header == "launcher/subprocess.h":
            return "agent sees process_runner.h, not subprocess.h"
        return None
    if not file.startswith("trainer/"):
        return None
    if header.startswith("launcher/"):
        allowed = header == "launcher/worker_contract.h"
        return None if allowed else "trainer may include launcher/worker_contract.h, nothing else of launcher"
    if header.startswith("tests/"):
        return "trainer never includes tests"
    if not header.startswith("trainer/"):
        return None
    here, there = trainer_room(file), trainer_room(header)
    if here == there:
        return config_error(file, header) if here == "config" else None
    if here not in RANK and here != "main":
        return f"trainer/{here}/ is not in the list of rooms; give it a rank in scripts/check_includes.py"
    if there not in RANK:
        return f"trainer/{there}/ is not in the list of rooms; give it a rank in scripts/check_includes.py"
    mine, theirs = RANK.get(here, MAIN_RANK), RANK[there]
    if theirs < mine:
        return None
    if theirs == mine:
        return f"siblings do not include each other: trainer/{here}/ and trainer/{there}/"
    return f"arrows point left only: trainer/{here}/ must not look at trainer/{there}/"


def config_error(file, header):
    here, there = file.split("/")[2:-1], header.split("/")[2:-1]
    if not here or not there or here == there:
        return None
    if here[0] not in CONFIG_RANK or there[0] not in CONFIG_RANK:
        return "a room of trainer/config/ is not in the list; give it a rank in scripts/check_includes.py"
    if CONFIG_RANK[there[0]] < CONFIG_RANK[here[0]]:
        return None
    return f"arrows point left only: config/{here[0]}/ must not look at config/{there[0]}/"


def fence_error(file, header):
    for pattern, allowed, rule in FENCES:
        if re.match(pattern, header):
            return None if re.match(allowed, file) else rule
    return None


def resolve(root, file, header):
    """An include relative to its own folder is as good as one from the root."""
    if not (root / header).exists():
        near = (Path(file).parent / header).as_posix()
        if (root / near).exists():
            return near
    return header


def check_file(root, path):
    file = path.relative_to(root).as_posix()
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        header = match[1] or resolve(root, file, match[2])
        if header.startswith("../") or "/../" in header:
            yield f"{file}:{number}: includes \"{header}\": write the path from the root of the project"
            continue
        error = room_error(file, header) or fence_error(file, header)
        if error:
            yield f"{file}:{number}: includes {header}: {error}"


def check_tree(root):
    errors, files = [], 0
    for folder in ("launcher", "trainer", "tests"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SOURCES:
                files += 1
                errors += check_file(root, path)
    return files, errors


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent).resolve()
    files, errors = check_tree(root)
    for error in errors:
        print(error)
    if not files:
        print(f"error: no source file under {root}", file=sys.stderr)
        return 2
    if errors:
        print(f"{len(errors)} include{'s' if len(errors) > 1 else ''} in the wrong direction", file=sys.stderr)
        return 1
    print(f"includes: {files} files, all directions right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
