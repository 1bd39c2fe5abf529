#!/usr/bin/env python3
"""Enforces the include rules: reads every #include in launcher/, trainer/ and tests/.

  check_includes.py [ROOT]     prints file:line: message for each violation; exit 1 if there is any
"""

import re
import sys
from pathlib import Path

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:<([^>]+)>|"([^"]+)")')
SOURCES = {".h", ".hh", ".hpp", ".cc", ".cpp", ".inl"}

# The rooms (directories) of each program: a room may include itself and rooms of lower rank, never a sibling.
ROOMS = {
    "launcher": {"base": 0, "logs": 1, "report": 1, "store": 1, "hang": 2, "rendezvous": 2, "process": 3, "etcd": 3, "cluster": 4, "cli": 5, "plan": 6,
                 "agent": 7, "start_with_torch": 7},
    "trainer": {"runtime": 0, "layout": 0, "hydra": 1, "config": 2, "storage": 2, "tensorfile": 2, "tokenizer": 2, "data": 3, "model": 3, "optim": 3, "parallel": 3,
                "metrics": 3, "health": 3, "interop": 4, "report": 4, "task": 5, "snapshot": 6, "run": 7, "app": 8},
}
MAIN_RANK = 9  # files outside the rooms: main and what it calls directly
CONTRACT = "launcher/worker_contract.h"
# Rooms in rooms, likewise; files of the outer one, such as config.h, the plain struct, are visible to all of them.
INNER_ROOMS = {
    "trainer/hydra": {"yaml": 0, "interpolation": 1, "override": 2, "compose": 3},
    "trainer/runtime": {"log": 0, "files": 1, "process": 2},
    "trainer/config": {"keys": 0, "load": 1, "show": 2},
    "trainer/tokenizer": {"bpe": 0, "wordpiece": 1},
    "trainer/model": {"ops": 0, "blocks": 1, "load": 1, "cost": 2, "bert": 3, "gpt": 3, "llama": 3},
    "trainer/parallel": {"environment": 0, "device": 1, "collectives": 2, "mesh": 3, "strategy": 4},
    "trainer/task": {"generate": 0, "predict": 0},
    "trainer/run": {"state": 0, "strategy": 1},
    "trainer/app": {"arguments": 0, "plan": 1, "modes": 2},
    "launcher/rendezvous": {"wire": 0, "round": 1, "host": 2, "follow": 2},
}

# Third-party headers and the only files that may include them; the first matching header pattern decides.
FENCES = [
    (r"gloo/|.*ProcessGroupGloo", r"trainer/parallel/collectives/gloo_backend\.cc$", "only gloo_backend.cc sees gloo headers"),
    (r".*c10d/reducer", r"trainer/parallel/strategy/ddp\.cc$", "only ddp.cc sees reducer.hpp"),
    (r".*c10d/", r"trainer/parallel/|tests/", "only trainer/parallel/ sees c10d headers"),
    (r"arrow/", r"trainer/storage/arrow_(folder|tables)\.(cc|h)$", "only arrow_folder.cc and arrow_tables.cc see Arrow"),
    (r"nccl\.h$", r"trainer/parallel/|tests/support/(fake_cuda|cuda_ledger)/", "only trainer/parallel/ sees NCCL"),
    (r"utf8proc", r"trainer/tokenizer/(word_splitter|wordpiece/bert_words|letter_case|normal_form)\.cc$", "only word_splitter, bert_words, letter_case and normal_form see utf8proc"),
    (r"(png|turbojpeg)\.h$", r"trainer/data/images/image_decoder\.cc$|tests/", "only image_decoder.cc sees libpng and libjpeg-turbo"),
    (r"zlib\.h$", r"trainer/data/images/idx_file\.cc$|tests/", "only idx_file.cc sees zlib"),
    (r"yaml-cpp/", r"trainer/hydra/yaml/", "only hydra/yaml/ sees yaml-cpp"),
    (r"nettle/", r"launcher/rendezvous/wire/connection_keys\.cc$", "only connection_keys.cc sees nettle"),
    (r"boost/", r"launcher/etcd/http_thread\.cc$", "only http_thread.cc sees Boost"),
    (r"cxxopts", r"launcher/cli/declare_option\.h$|trainer/app/arguments/parsed_options\.h$",
     "only declare_option.h and parsed_options.h see cxxopts"),
    (r"(torch|ATen|c10|caffe2)/", r"trainer/(?!config/|hydra/)|tests/(?!launcher/|trainer/config/|trainer/hydra/)",
     "LibTorch is for trainer/ outside config/ and hydra/"),
]


def direction_error(file, header):
    """For two files of the same program."""
    program = file.split("/")[0]
    rank = ROOMS[program]
    here, there = (path.split("/")[1] if path.count("/") > 1 else "main" for path in (file, header))
    if here == there:
        return None
    for room in (here, there):
        if room not in rank and room != "main":
            return f"{program}/{room}/ is not in the list of rooms; give it a rank in scripts/checks/check_includes.py"
    mine, theirs = rank.get(here, MAIN_RANK), rank.get(there, MAIN_RANK)
    if theirs < mine:
        return None
    if theirs == mine:
        return f"siblings do not include each other: {program}/{here}/ and {program}/{there}/"
    return f"arrows point left only: {program}/{here}/ must not look at {program}/{there}/"


def room_error(file, header):
    """For the project's own headers: which directory may include which."""
    program, other = file.split("/")[0], header.split("/")[0]
    if program not in ROOMS or other not in (*ROOMS, "tests"):
        return None
    if header == CONTRACT:
        return None
    if file == CONTRACT:
        return "worker_contract.h is for both programs: it includes nothing of either"
    if other == "tests":
        return f"{program} never includes tests"
    if program == "launcher" and other == "trainer":
        return "launcher never includes trainer"
    if program == "trainer" and other == "launcher":
        return "trainer may include launcher/worker_contract.h, nothing else of launcher"
    if file.startswith("launcher/agent/") and header == "launcher/process/worker_processes.h":
        return "agent sees process_runner.h, not worker_processes.h"
    for outer, rank in INNER_ROOMS.items():
        if file.startswith(outer + "/") and header.startswith(outer + "/"):
            return inner_error(outer, rank, file, header)
    return direction_error(file, header)


def inner_error(outer, rank, file, header):
    here, there = file.split("/")[2:-1], header.split("/")[2:-1]
    if not here or not there or here[0] == there[0]:
        return None
    if here[0] not in rank or there[0] not in rank:
        return f"a room of {outer}/ is not in the list; give it a rank in scripts/checks/check_includes.py"
    if rank[there[0]] < rank[here[0]]:
        return None
    return f"arrows point left only: {outer}/{here[0]}/ must not look at {outer}/{there[0]}/"


def fence_error(file, header):
    for pattern, allowed, rule in FENCES:
        if re.match(pattern, header):
            return None if re.match(allowed, file) else rule
    return None


def resolve(root, file, header):
    """Accepts includes relative to the including file as well as to the root."""
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
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]).resolve()
    files, errors = check_tree(root)
    for error in errors:
        print(error)
    if not files:
        print(f"error: no source file under {root}", file=sys.stderr)
        return 2
    if errors:
        print(f"{len(errors)} include{'s' if len(errors) > 1 else ''} in the wrong direction", file=sys.stderr)
        return 1
    print(f"includes: {files} files, no violations")
    return 0


if __name__ == "__main__":
    sys.exit(main())
