#!/usr/bin/env python3
"""Ranks ctest's tests by CPU time: their own and that of all processes they start.

  test_cost.py [--build DIR] [-j N] [-R REGEX] [-L LABEL] [--out FILE]

Each test runs as ctest would run it. FILE gets a line of JSON for each: name, label, CPU and wall seconds, exit code.
"""

import argparse
import collections
import concurrent.futures
import ctypes
import json
import os
import re
import resource
import subprocess
import sys
import time

PR_SET_CHILD_SUBREAPER = 36


def own_process(command):
    """Runs `command` to the end of its last descendant, and prints the CPU seconds that they took."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    code = subprocess.Popen(command, stdout=sys.stderr).wait()
    try:
        while True:
            os.wait()
    except ChildProcessError:
        pass
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(json.dumps({"cpu": used.ru_utime + used.ru_stime, "code": code}))


def properties(test):
    return {entry["name"]: entry["value"] for entry in test.get("properties", [])}


def measure(test):
    values = properties(test)
    env = dict(os.environ, **dict(entry.split("=", 1) for entry in values.get("ENVIRONMENT", [])))
    start = time.monotonic()
    row = {"name": test["name"], "label": ",".join(values.get("LABELS", [])), "cpu": 0.0, "code": None}
    child = subprocess.Popen([sys.executable, __file__, "--one", *test["command"]], env=env, text=True, stdin=subprocess.DEVNULL,
                             cwd=values.get("WORKING_DIRECTORY"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        row.update(json.loads(child.communicate(timeout=values.get("TIMEOUT", 1500))[0]))
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
    return {**row, "wall": time.monotonic() - start}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("-j", type=int, default=os.cpu_count())
    parser.add_argument("-R", default="")
    parser.add_argument("-L", default="")
    parser.add_argument("--out", default=os.devnull)
    arguments = parser.parse_args()
    listed = subprocess.run(["ctest", "--test-dir", arguments.build, "--show-only=json-v1", "-L", arguments.L], capture_output=True,
                            text=True, check=True).stdout
    tests = [test for test in json.loads(listed)["tests"] if "command" in test and re.search(arguments.R, test["name"])]
    rows = []
    with concurrent.futures.ThreadPoolExecutor(arguments.j) as pool, open(arguments.out, "w", encoding="utf-8") as out:
        for done in concurrent.futures.as_completed([pool.submit(measure, test) for test in tests]):
            rows.append(done.result())
            print(json.dumps(rows[-1]), file=out, flush=True)
    rows.sort(key=lambda row: -row["cpu"])
    by_label = collections.defaultdict(lambda: [0, 0.0, 0.0])
    for row in rows:
        entry = by_label[row["label"]]
        entry[0], entry[1], entry[2] = entry[0] + 1, entry[1] + row["cpu"], entry[2] + row["wall"]
        print(f"{row['cpu']:8.2f} {row['wall']:8.2f}  {row['label']:14} {row['name']}{'' if row['code'] == 0 else '  FAILED'}")
    for label, (count, cpu, wall) in sorted(by_label.items(), key=lambda item: -item[1][1]):
        print(f"{label:14} {count:5d} tests {cpu / 60:7.2f} CPU minutes {wall / 60:7.2f} minutes of wall time")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        own_process(sys.argv[2:])
    else:
        main()
