"""The program that `trainer` is measured against: minGPT under DistributedDataParallel, as people write it in plain PyTorch.

Same model and arithmetic as trainer's: pre-norm GPT with learned positions, one projection for query, key and value, exact
GELU, an output layer of its own, dropout on embeddings, attention and residuals; AdamW with weight decay on linear layers
only, gradients clipped to a norm of 1. With --kv_heads the model is transformers' Llama instead, with the loss that comes with
it. DistributedSampler and DataLoader over windows of a text that is encoded once. Prints trainer's words for a step,
`Step 10 | Train Loss 2.92`, every --log_every steps.
"""

import argparse
import math
import os
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class CharDataset(Dataset):
    def __init__(self, path, block):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        characters = sorted(set(text))
        index = {c: i for i, c in enumerate(characters)}
        self.tokens = torch.tensor([index[c] for c in text])
        self.vocabulary, self.block = len(characters), block

    def __len__(self):
        return len(self.tokens) - self.block

    def __getitem__(self, i):
        window = self.tokens[i:i + self.block + 1]
        return window[:-1], window[1:]


class Attention(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.c_attn = nn.Linear(args.width, 3 * args.width)
        self.c_proj = nn.Linear(args.width, args.width)
        self.heads, self.dropout = args.heads, args.dropout

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (part.view(B, T, self.heads, C // self.heads).transpose(1, 2) for part in self.c_attn(x).split(C, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0, is_causal=True)
        y = self.c_proj(y.transpose(1, 2).reshape(B, T, C))
        return F.dropout(y, self.dropout, self.training)


class Block(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(args.width), nn.LayerNorm(args.width)
        self.attn = Attention(args)
        self.c_fc, self.c_proj = nn.Linear(args.width, 4 * args.width), nn.Linear(4 * args.width, args.width)
        self.drop = nn.Dropout(args.dropout)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.drop(self.c_proj(F.gelu(self.c_fc(self.ln_2(x)))))


class Gpt(nn.Module):
    def __init__(self, args, vocabulary):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, args.width), nn.Embedding(args.block, args.width)
        self.drop = nn.Dropout(args.dropout)
        self.blocks = nn.ModuleList(Block(args) for _ in range(args.layers))
        self.ln_f = nn.LayerNorm(args.width)
        self.head = nn.Linear(args.width, vocabulary, bias=False)
        if getattr(args, "tie", False):  # the other peers have no such option
            self.head.weight = self.wte.weight
        for name, p in self.named_parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * args.layers) if "c_proj" in name else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def logits(self, tokens):
        x = self.drop(self.wte(tokens) + self.wpe(torch.arange(tokens.size(1), device=tokens.device)))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln_f(x))

    def forward(self, tokens, targets):
        logits = self.logits(tokens)
        return F.cross_entropy(logits.view(-1, logits.size(-1)).float(), targets.view(-1))


class Llama(nn.Module):
    def __init__(self, args, vocabulary):
        super().__init__()
        from transformers import LlamaConfig, LlamaForCausalLM
        self.model = LlamaForCausalLM(LlamaConfig(
            vocab_size=vocabulary, hidden_size=args.width, intermediate_size=args.intermediate, num_hidden_layers=args.layers,
            num_attention_heads=args.heads, num_key_value_heads=args.kv_heads, max_position_embeddings=args.block,
            use_cache=False))

    def forward(self, tokens, targets):
        return self.model(input_ids=tokens, labels=targets, shift_labels=targets).loss


def make_model(args, vocabulary):
    return Llama(args, vocabulary) if args.kv_heads else Gpt(args, vocabulary)


def make_optimizer(model, args):
    decayed = [p for name, p in model.named_parameters()
               if p.dim() > 1 and not name.startswith(("wte", "wpe", "model.model.embed_tokens"))]
    ids = {id(p) for p in decayed}
    others = [p for p in model.parameters() if id(p) not in ids]
    return torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                             lr=args.learning_rate, betas=(0.9, 0.95), fused=True)


def endless(loader, sampler):
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        yield from loader
        epoch += 1


def train(args, rank, device):
    torch.manual_seed(1337 + rank)
    data = CharDataset(args.text, args.block)
    net = make_model(args, data.vocabulary if args.vocabulary == 0 else args.vocabulary).to(device)
    model = DistributedDataParallel(net, gradient_as_bucket_view=True) if dist.is_initialized() else net
    if args.compile:
        model = torch.compile(model)
    optimizer = make_optimizer(net, args)
    scaler = torch.amp.GradScaler(device.type, enabled=args.amp == "float16")
    autocast = torch.autocast(device.type, getattr(torch, args.amp)) if args.amp else nullcontext()
    ranks = dist.get_world_size() if dist.is_initialized() else 1
    sampler = DistributedSampler(data, num_replicas=ranks, rank=rank, seed=1337, drop_last=True)
    loader = DataLoader(data, args.batch, sampler=sampler, drop_last=True, pin_memory=device.type == "cuda")
    profiler = torch.profiler.profile() if args.trace else None
    for step, (tokens, targets) in enumerate(endless(loader, sampler), 1):
        if profiler and step == args.trace_from:
            profiler.start()
        elif profiler and step == args.trace_from + args.trace_steps:
            profiler.stop()
            profiler.export_chrome_trace(args.trace)
        tokens, targets = tokens.to(device, non_blocking=True), targets.to(device, non_blocking=True)
        optimizer.zero_grad(set_to_none=not dist.is_initialized())
        with autocast:
            loss = model(tokens, targets)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        if rank == 0 and (step == 1 or step % args.log_every == 0):
            print(f"Step {step} | Train Loss {loss.item():.6f}", flush=True)
        if step == args.steps:
            break
    if device.type == "cuda":
        print(f"GPU memory: peak {torch.cuda.max_memory_allocated() / 1e9:.2f}GB, of tensors", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    for name, default in (("layers", 4), ("heads", 4), ("width", 128), ("block", 64), ("batch", 16), ("steps", 60),
                          ("log_every", 10), ("vocabulary", 0), ("kv_heads", 0), ("intermediate", 0),
                          ("trace_from", 30), ("trace_steps", 3)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--learning_rate", type=float, default=0.002)
    parser.add_argument("--amp", choices=("bfloat16", "float16"))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--tie", action="store_true", help="one matrix for the token embedding and the output layer")
    parser.add_argument("--trace", metavar="FILE", help="write a Chrome trace of --trace_steps steps from --trace_from on")
    args = parser.parse_args()
    rank = int(os.environ.get("RANK", 0))
    device = torch.device(args.device, int(os.environ.get("LOCAL_RANK", 0)) if args.device == "cuda" else None)
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        dist.init_process_group("gloo" if args.device == "cpu" else "nccl")
    train(args, rank, device)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # With torch 2.15 the interpreter may abort while it ends; the result is out by then.
    os._exit(0)
