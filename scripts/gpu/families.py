"""A trace's GPU time per step by family of kernels, and the share of the time in which the GPU was idle.

  families.py TRACE.json --steps N [--top 10]      trainer's profile_rank_0.json, or torch.profiler's Chrome trace
"""

import argparse
import collections
import json
import re

FAMILIES = [(name, re.compile(pattern)) for name, pattern in (
    ("own kernels", r"^ddp_"),
    ("attention", r"fmha|flash|sdpa|attention"),
    ("products", r"nvjet|gemm|xmma|cutlass|cublas|splitK"),
    ("collectives", r"^nccl"),
    ("optimizer, foreach", r"multi_tensor"),
    ("element-wise with casts", r"elementwise_kernel<128, 4.*gpu_kernel_impl<|unrolled_elementwise"),
    ("element-wise", r"elementwise"),
    ("norms", r"layer_norm|LayerNorm|GammaBeta|rms_norm"),
    ("reductions", r"reduce_kernel"),
    ("loss", r"softmax|SoftMax|nll"),
    ("embedding", r"mbedding|index|[Ss]ort"),
    ("cat", r"CatArray"),
    ("copies", r"^Mem(cpy|set)"))]
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


def family_of(name):
    return next((family for family, pattern in FAMILIES if pattern.search(name)), "other")


def summed(events, steps, key):
    """[(name, ms per step, calls per step)], longest first."""
    sums = collections.defaultdict(lambda: [0.0, 0])
    for event in events:
        entry = sums[key(event["name"])]
        entry[0] += event["dur"]
        entry[1] += 1
    return sorted(((name, us / steps / 1e3, calls / steps) for name, (us, calls) in sums.items()), key=lambda row: -row[1])


def busy_time(events):
    """Microseconds in which at least one of them ran."""
    busy, end = 0.0, float("-inf")
    for begin, until in sorted((event["ts"], event["ts"] + event["dur"]) for event in events):
        busy += max(0.0, until - max(begin, end))
        end = max(end, until)
    return busy


def account(path, steps, top=10):
    """What a step costs by this trace; None if nothing ran on a GPU."""
    with open(path, encoding="utf-8") as file:
        events = [e for e in json.load(file)["traceEvents"] if e.get("ph") == "X" and e.get("cat") in ON_DEVICE]
    if not events:
        return None
    span = max(e["ts"] + e["dur"] for e in events) - min(e["ts"] for e in events)
    busy = busy_time(events)
    return {"busy_ms": busy / steps / 1e3, "span_ms": span / steps / 1e3, "idle": 1 - busy / span, "launches": len(events) / steps,
            "families": summed(events, steps, family_of), "kernels": summed(events, steps, lambda name: name[:100])[:top]}


def lines(found):
    yield (f"GPU busy {found['busy_ms']:.2f} ms a step of {found['span_ms']:.2f}, idle {found['idle']:.1%}, "
           f"{found['launches']:.0f} launches")
    for title in ("families", "kernels"):
        for name, ms, calls in found[title]:
            yield f"{'  ' if title == 'families' else '      '}{ms:8.3f} ms {calls:6.0f}  {name}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--top", type=int, default=10)
    args = parser.parse_args()
    found = account(args.trace, args.steps, args.top)
    print("\n".join(lines(found)) if found else "no kernels of a GPU in this trace")


if __name__ == "__main__":
    main()
