"""Compares learning rates and optimizer steps with torch's and transformers' own.

  optim_peer.py FILE     FILE is what optim_test.cc wrote; exit 77 when a package is missing
"""

import json
import os
import sys

try:
    import torch
    from transformers import optimization
except ImportError:
    sys.exit(77)


class Rates:
    """Learning rates of `steps` optimizer steps under a scheduler of theirs."""

    def __init__(self, case):
        self.case = case
        parameter = torch.nn.Parameter(torch.zeros(1))
        self.optimizer = torch.optim.SGD([parameter], lr=case["learning_rate"])

    def scheduler(self):
        case, optimizer = self.case, self.optimizer
        kind, warmup, end = case["lr_schedule"], case["warmup_steps"], case["end"]
        ratio = case["min_lr"] / case["learning_rate"]
        if kind == "constant":
            return optimization.get_constant_schedule_with_warmup(optimizer, warmup)
        if kind == "linear":
            return optimization.get_polynomial_decay_schedule_with_warmup(optimizer, warmup, end, lr_end=case["min_lr"])
        if kind == "polynomial":
            return optimization.get_polynomial_decay_schedule_with_warmup(
                optimizer, warmup, end, lr_end=case["min_lr"], power=case["lr_power"])
        if kind == "cosine":
            return optimization.get_cosine_with_min_lr_schedule_with_warmup(
                optimizer, warmup, end, min_lr=case["min_lr"])
        if kind == "wsd":
            return optimization.get_wsd_schedule(
                optimizer, warmup, case["decay_steps"], num_training_steps=case["total"], decay_type="linear",
                min_lr_ratio=ratio)
        share = warmup / end if warmup else 0.3
        return torch.optim.lr_scheduler.OneCycleLR(
            optimizer, case["learning_rate"], total_steps=end, pct_start=share, cycle_momentum=False)

    def all(self):
        scheduler, rates = self.scheduler(), []
        for step in range(len(self.case["rates"])):
            rates.append(self.optimizer.param_groups[0]["lr"])
            self.optimizer.step()
            if step + 1 < len(self.case["rates"]):
                scheduler.step()
        return rates


def check_rates(case):
    theirs = Rates(case).all()
    # transformers' wsd warms up from min_lr, ours from 0 as its other schedules do.
    first = case["warmup_steps"] if case["lr_schedule"] == "wsd" else 0
    # transformers' cosine rises again behind its end; ours stays at min_lr.
    last = case["end"] + 1 if case["lr_schedule"] == "cosine" else len(theirs)
    for step in range(first, last):
        ours = case["rates"][step]
        if abs(ours - theirs[step]) > 1e-12 + 1e-9 * abs(theirs[step]):
            return f"{case['lr_schedule']}: step {step}: {ours}, theirs {theirs[step]}"
    return None


def their_optimizers(case, parameters):
    """An optimizer of theirs for each kind that a group names, with the groups as its param_groups."""
    groups = {}
    for parameter, described in zip(parameters, case["parameters"]):
        own = described["group"]
        key = own["optimizer"], case["learning_rate"] * own["lr_mult"], own["weight_decay"]
        groups.setdefault(key, []).append(parameter)
    betas, eps, momentum = tuple(case["betas"]), case["eps"], case["momentum"]
    make = {
        "adamw": lambda g: torch.optim.AdamW(g, betas=betas, eps=eps, fused=True),
        "adam": lambda g: torch.optim.Adam(g, betas=betas, eps=eps, fused=True),
        "sgd": lambda g: torch.optim.SGD(g, lr=0.0, momentum=momentum, nesterov=case["nesterov"]),
        "muon": lambda g: torch.optim.Muon(g, momentum=momentum, nesterov=True, adjust_lr_fn="match_rms_adamw"),
    }
    return [make[kind]([{"params": p, "lr": rate, "weight_decay": decay}
                        for (name, rate, decay), p in groups.items() if name == kind])
            for kind in sorted({name for name, _, _ in groups})]


def check_steps(case):
    parameters = [torch.nn.Parameter(torch.tensor(p["before"]).view(p["shape"])) for p in case["parameters"]]
    optimizers = their_optimizers(case, parameters)
    for gradients in case["gradients"]:
        for parameter, gradient in zip(parameters, gradients):
            parameter.grad = torch.tensor(gradient).view(parameter.shape)
        for optimizer in optimizers:
            optimizer.step()
    for parameter, flag in zip(parameters, case["parameters"]):
        ours = torch.tensor(flag["after"]).view(parameter.shape)
        if not torch.allclose(ours, parameter, rtol=1e-6, atol=1e-8):
            worst = (ours - parameter).abs().max().item()
            return f"{case['name']}: {flag['name']} differs by {worst}"
    return None


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        cases = json.load(file)
    errors = [check_rates(case) for case in cases["rates"]] + [check_steps(case) for case in cases["steps"]]
    errors = [error for error in errors if error]
    print("\n".join(errors) or f"{len(cases['rates'])} schedules and {len(cases['steps'])} optimizers agree")
    return 1 if errors else 0


if __name__ == "__main__":
    code = main()
    # With torch 2.15 the interpreter may abort while it ends; the result is out by then.
    sys.stdout.flush()
    os._exit(code)
