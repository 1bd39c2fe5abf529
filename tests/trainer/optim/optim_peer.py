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


def their_optimizer(case, groups):
    decayed, plain, hidden = groups
    decay = case["weight_decay"]
    betas, eps, rate = tuple(case["betas"]), case["eps"], case["learning_rate"]
    adam = [{"params": decayed, "weight_decay": decay}, {"params": plain, "weight_decay": 0.0}]
    if case["name"] == "adamw":
        return [torch.optim.AdamW(adam, lr=rate, betas=betas, eps=eps, fused=True)]
    if case["name"] == "adam":
        return [torch.optim.Adam(adam, lr=rate, betas=betas, eps=eps, fused=True)]
    if case["name"] == "sgd":
        return [torch.optim.SGD(adam, lr=rate, momentum=case["momentum"], nesterov=case["nesterov"])]
    rest = [{"params": [p for p in decayed if p not in set(hidden)], "weight_decay": decay},
            {"params": plain, "weight_decay": 0.0}]
    return [torch.optim.Muon(hidden, lr=rate, weight_decay=decay, momentum=case["momentum"], nesterov=True,
                             adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW([g for g in rest if g["params"]], lr=rate, betas=betas, eps=eps, fused=True)]


def check_steps(case):
    parameters = [torch.nn.Parameter(torch.tensor(p["before"]).view(p["shape"])) for p in case["parameters"]]
    flags = case["parameters"]
    groups = ([p for p, f in zip(parameters, flags) if f["decay"]],
              [p for p, f in zip(parameters, flags) if not f["decay"]],
              [p for p, f in zip(parameters, flags) if f["hidden"]])
    optimizers = their_optimizer(case, groups)
    for gradients in case["gradients"]:
        for parameter, gradient in zip(parameters, gradients):
            parameter.grad = torch.tensor(gradient).view(parameter.shape)
        for optimizer in optimizers:
            optimizer.step()
    for parameter, flag in zip(parameters, flags):
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
