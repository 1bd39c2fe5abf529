#!/usr/bin/env python3
"""Where a step's time goes, by operation: self times of a trace that `profile.start` made.

  breakdown.py profile_rank_0.json [--steps 3] [--most 25]      --steps: profile.steps of that run
"""

import argparse
import collections
import json


def self_times(events):
    """{name: [microseconds without what was called, calls]}"""
    found = collections.defaultdict(lambda: [0.0, 0])
    open_calls = []
    for event in sorted(events, key=lambda e: (e["tid"], e["ts"], -e["dur"])):
        while open_calls and not (open_calls[-1]["tid"] == event["tid"]
                                  and event["ts"] < open_calls[-1]["ts"] + open_calls[-1]["dur"]):
            open_calls.pop()
        found[event["name"]][0] += event["dur"]
        found[event["name"]][1] += 1
        if open_calls:
            found[open_calls[-1]["name"]][0] -= event["dur"]
        open_calls.append(event)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--most", type=int, default=25)
    args = parser.parse_args()
    with open(args.trace, encoding="utf-8") as file:
        events = [e for e in json.load(file)["traceEvents"]
                  if e.get("ph") == "X" and e.get("cat") in ("cpu_op", "user_annotation")]
    times = self_times(events)
    total = sum(time for time, _ in times.values())
    print(f"{'ms/step':>8} {'share':>6} {'calls':>6}  operation")
    for name, (time, calls) in sorted(times.items(), key=lambda item: -item[1][0])[:args.most]:
        print(f"{time / args.steps / 1e3:8.2f} {time / total:6.1%} {calls / args.steps:6.1f}  {name}")
    print(f"{total / args.steps / 1e3:8.2f} {1:6.1%}         all")


if __name__ == "__main__":
    main()
