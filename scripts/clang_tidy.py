#!/usr/bin/env python3
"""Runs clang-tidy with the compile commands of a build folder, on all files or on those named.

  clang_tidy.py [--clang-tidy PROGRAM] [--build build/release] [-j N] [FILE ...]

Files that see LibTorch take 15 s each to parse, so those of one folder are checked together in one
translation unit (one by one where they do not compile together). clang's static analyzer is for the
other files: through torch's headers it takes minutes.
"""

import argparse
import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Checks that make no sense for a .cc file that is included, or take too long through torch's headers.
TOGETHER = "--checks=-clang-analyzer-*,-bugprone-suspicious-include"


def flags_of(entry):
    """The compiler's flags without its input, its output and gcc's precompiled header."""
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
        elif word not in ("-Winvalid-pch", "-fpch-preprocess") and not word.startswith("-fsanitize"):
            flags.append(word)
    return flags + ["-Wno-unknown-warning-option"]


def work(build, wanted):
    """[(files that are checked together, their flags)], the long ones first."""
    database = build / "compile_commands.json"
    if not database.exists():
        sys.exit(f"error: no {database}; tip: cmake --preset release")
    alone, together, seen = [], defaultdict(list), set()
    for entry in json.loads(database.read_text()):
        file = Path(entry["directory"], entry["file"]).resolve()
        if file in seen or not file.is_relative_to(ROOT) or file.is_relative_to(ROOT / "build"):
            continue
        if wanted and file not in wanted:
            continue
        seen.add(file)
        flags = flags_of(entry)
        if any("/torch/include" in flag or "csrc/api/include" in flag for flag in flags):
            together[file.parent, tuple(flags)].append(file)
        else:
            alone.append(([file], flags))
    groups = [(sorted(files), list(flags)) for (_, flags), files in together.items()]
    return sorted(groups, key=lambda group: -len(group[0])) + alone


def run(program, files, flags):
    if len(files) == 1:
        source, extra = str(files[0]), [TOGETHER] if "-include" in flags or "csrc/api" in " ".join(flags) else []
        return subprocess.run([program, "--quiet", *extra, source, "--", *flags], cwd=ROOT, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    # Beside the sources, so that .clang-tidy is found; under a name that git ignores.
    with tempfile.NamedTemporaryFile("w", suffix=".cc", dir=ROOT / "build") as unit:
        unit.write("".join(f'#include "{file}"\n' for file in files))
        unit.flush()
        result = subprocess.run([program, "--quiet", TOGETHER, f"--config-file={ROOT / '.clang-tidy'}", unit.name,
                                 "--", *flags], cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if "[clang-diagnostic-error" not in result.stdout:
        return result
    parts = [run(program, [file], flags) for file in files]
    return subprocess.CompletedProcess([], max(part.returncode for part in parts), "".join(p.stdout for p in parts))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clang-tidy", default="clang-tidy")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release")
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
                # A finding in a header comes once for each file that includes it.
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
