#!/usr/bin/env python3
"""Runs clang-tidy with the compile commands of a build directory, on all files or on those given.

  clang_tidy.py [--clang-tidy PROGRAM] [--build build/dev] [-j N] [FILE ...]

Most of the time goes into parsing headers (15 s with LibTorch), so the files of a directory are checked together
in one translation unit, which is split in halves if they do not compile together.
"""

import argparse
import concurrent.futures
import json
import math
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Files checked together are included from a generated one, which this check would flag.
TOGETHER = "--checks=-bugprone-suspicious-include"
MOST_TOGETHER = 12  # keeps all cores busy


def flags_of(entry):
    """The compiler flags without input, output and gcc's precompiled header."""
    words = shlex.split(entry["command"])
    words = words[next(i for i, w in enumerate(words) if re.search(r"(g\+\+|clang\+\+|c\+\+)(-\d+)?$", w)) + 1:]
    flags, skip = [], 0
    for index, word in enumerate(words):
        if skip:
            skip -= 1
        elif word in ("-o", "-c"):
            skip = 1
        elif word == "-include" and "cmake_pch" in words[index + 1]:
            skip = 1
            flags += ["-include", "torch/torch.h"]
        elif word != "-fpch-preprocess" and not word.startswith(("-W", "-fsanitize")):
            flags.append(word)
    return flags + ["-w"]  # warnings are the compiler's job


def work(build, wanted):
    """[(files to check together, their flags)], slowest first."""
    database = build / "compile_commands.json"
    if not database.exists():
        sys.exit(f"error: no {database}; tip: cmake --preset dev")
    folders, seen = defaultdict(list), set()
    for entry in json.loads(database.read_text()):
        file = Path(entry["directory"], entry["file"]).resolve()
        if file in seen or not file.is_relative_to(ROOT) or file.is_relative_to(ROOT / "build"):
            continue
        if wanted and file not in wanted:
            continue
        seen.add(file)
        folders[file.parent, tuple(flags_of(entry))].append(file)
    groups = []
    for (_, flags), files in folders.items():
        files.sort()
        parts = math.ceil(len(files) / MOST_TOGETHER)
        groups += [(files[i::parts], list(flags)) for i in range(parts)]
    sees_torch = "csrc/api/include"
    return sorted(groups, key=lambda group: (sees_torch not in " ".join(group[1]), -len(group[0])))


def run(program, files, flags):
    def clang_tidy(*arguments):
        return subprocess.run([program, "--quiet", *arguments, "--", *flags], cwd=ROOT, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    if len(files) == 1:
        return clang_tidy(str(files[0]))
    with tempfile.NamedTemporaryFile("w", suffix=".cc", dir=ROOT / "build") as unit:
        unit.write("".join(f'#include "{file}"\n' for file in files))
        unit.flush()
        result = clang_tidy(TOGETHER, f"--config-file={ROOT / '.clang-tidy'}", unit.name)
    if "[clang-diagnostic-error" not in result.stdout:
        return result
    half = len(files) // 2  # two files define a helper of the same name
    parts = [run(program, files[:half], flags), run(program, files[half:], flags)]
    return subprocess.CompletedProcess([], max(p.returncode for p in parts), "".join(p.stdout for p in parts))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clang-tidy", default="clang-tidy")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "dev")
    parser.add_argument("-j", type=int, default=os.cpu_count())
    parser.add_argument("--verbose", action="store_true", help="print the time of each run")
    parser.add_argument("files", type=Path, nargs="*")
    args = parser.parse_args()

    groups = work(args.build, {file.resolve() for file in args.files})

    def timed(group):
        start = time.monotonic()
        return group, run(args.clang_tidy, *group), time.monotonic() - start

    findings = {}
    with concurrent.futures.ThreadPoolExecutor(args.j) as pool:
        for group, result, seconds in pool.map(timed, groups):
            if args.verbose:
                print(f"{seconds:6.1f} s  {' '.join(str(f.relative_to(ROOT)) for f in group[0])}")
            if result.returncode:
                # A finding in a header is repeated for each file that includes it.
                for block in re.split(r"^(?=/)", result.stdout, flags=re.MULTILINE):
                    if re.match(r"/.*(error|warning):", block):
                        findings.setdefault(block.splitlines()[0], block)
                if not re.search(r"(error|warning):", result.stdout):
                    findings.setdefault(result.stdout, result.stdout)
    for block in findings.values():
        print(block.replace(f"{ROOT}/", "").rstrip())
    count = sum(len(group[0]) for group in groups)
    print(f"clang-tidy: {count} files, {len(findings)} findings")
    return 1 if findings or not count else 0


if __name__ == "__main__":
    sys.exit(main())
