"""Recomputes in Python what trainer dumped, and compares. Usage: numerics_peer.py DUMP N_HEAD GELU_APPROXIMATION PEER

PEER: torch, or transformers, whose GPT-2 gives logits only. Exit code 0: equal within the tolerances; 1: not; 77: the peer
or safetensors is not installed.
"""

import os
import sys

try:
    import torch
    import torch.nn.functional as F
    from safetensors.torch import load_file
    if sys.argv[4] == "transformers":
        from transformers import GPT2Config, GPT2LMHeadModel
except ImportError:
    sys.exit(77)

TOLERANCE = {"logits": 2e-6, "loss": 1e-6, "grad": 2e-6, "after": 1e-6}


def gpt(weights, tokens, n_head, approximate):
    def linear(x, name):
        return F.linear(x, weights[name + ".weight"], weights[name + ".bias"])

    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], weights[name + ".weight"], weights[name + ".bias"])

    batch, length = tokens.shape
    x = F.embedding(tokens, weights["transformer.wte.weight"]) + weights["transformer.wpe.weight"][:length]
    width = x.shape[-1]
    mask = torch.full((length, length), float("-inf")).triu(1)
    layer = 0
    while f"transformer.h.{layer}.ln_1.weight" in weights:
        h = f"transformer.h.{layer}"
        q, k, v = linear(norm(x, h + ".ln_1"), h + ".attn.c_attn").split(width, dim=2)
        q, k, v = (t.view(batch, length, n_head, width // n_head).transpose(1, 2) for t in (q, k, v))
        scores = q @ k.transpose(-2, -1) / (width // n_head) ** 0.5 + mask
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width)
        x = x + linear(y, h + ".attn.c_proj")
        y = F.gelu(linear(norm(x, h + ".ln_2"), h + ".mlp.c_fc"), approximate=approximate)
        x = x + linear(y, h + ".mlp.c_proj")
        layer += 1
    x = norm(x, "transformer.ln_f")
    return F.linear(x, weights.get("lm_head.weight", weights["transformer.wte.weight"]))


def transformers_logits(weights, tokens, n_head):
    layers = sum(1 for name in weights if name.endswith("attn.c_attn.weight"))
    vocab, width = weights["transformer.wte.weight"].shape
    model = GPT2LMHeadModel(GPT2Config(vocab_size=vocab, n_positions=weights["transformer.wpe.weight"].shape[0],
                                       n_embd=width, n_layer=layers, n_head=n_head))
    state = {}
    for name, value in weights.items():
        transposed = any(key in name for key in ("c_attn.weight", "c_proj.weight", "c_fc.weight"))
        state[name] = value.detach().t().contiguous() if transposed else value.detach()
    state["lm_head.weight"] = state["transformer.wte.weight"]
    model.load_state_dict(state)
    with torch.no_grad():
        return model.eval()(tokens).logits


def main():
    dump = load_file(sys.argv[1])
    n_head, approximate = int(sys.argv[2]), sys.argv[3]
    weights = {k.removeprefix("before."): v.clone().requires_grad_() for k, v in dump.items() if k.startswith("before.")}
    worst = dict.fromkeys(TOLERANCE, 0.0)

    def compare(kind, ours, peer):
        worst[kind] = max(worst[kind], (ours - peer).abs().max().item())

    logits = gpt(weights, dump["inputs"], n_head, approximate)
    loss = F.cross_entropy(logits.flatten(0, 1), dump["targets"].flatten())
    loss.backward()
    compare("logits", dump["logits"], logits)
    compare("loss", dump["loss"], loss)
    for name, tensor in weights.items():
        compare("grad", dump["grad." + name], tensor.grad)

    decay = [n for n, t in weights.items() if t.dim() == 2 and "wte" not in n and "wpe" not in n]
    # The step is compared on equal gradients: Adam's first step is nearly their sign, which magnifies tiny differences.
    for name, tensor in weights.items():
        tensor.grad = dump["grad." + name]
    torch.optim.AdamW([{"params": [weights[n] for n in weights if n in decay], "weight_decay": 0.1},
                       {"params": [weights[n] for n in weights if n not in decay], "weight_decay": 0.0}],
                      lr=3e-4, betas=(0.9, 0.95), eps=1e-8).step()
    for name, tensor in weights.items():
        compare("after", dump["after." + name], tensor.detach())

    if sys.argv[4] == "transformers":
        start = {k.removeprefix("before."): v for k, v in dump.items() if k.startswith("before.")}
        compare("logits", dump["logits"], transformers_logits(start, dump["inputs"], n_head))
    bad = {kind: value for kind, value in worst.items() if value > TOLERANCE[kind]}
    print("largest differences:", worst, "TOO LARGE" if bad else "", file=sys.stderr)
    return 1 if bad else 0


code = main()
# With torch 2.15 the interpreter may abort while it ends; the result is out by then.
sys.stdout.flush()
os._exit(code)
