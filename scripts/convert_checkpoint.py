#!/usr/bin/env python3
"""Turns a checkpoint of another minGPT into a folder for gpt_config.init_from (and for transformers' GPT2LMHeadModel).

  convert_checkpoint.py CHECKPOINT OUTPUT [--n_head N] [--activation gelu|gelu_new]
                        [--data FILE [--truncate SHARE] | --meta FILE]

CHECKPOINT  nanoGPT's ckpt.pt (contains n_head), a state dict of minGPT or of trainer export --format torch, or a
            snapshot of the PyTorch example minGPT-ddp (model_state, optimizer_state, finished_epoch)
--n_head    Attention heads, where the checkpoint does not say
--activation  gelu, or gelu_new for its tanh form; default: gelu for nanoGPT and the example, else gelu_new
--data      The text that a character model was trained on: its sorted characters become tokenizer.json
--truncate  The share of that text that was used (data_config.truncate); default 1
--meta      nanoGPT's meta.pkl instead of --data: its characters

Weights alone are converted: training starts with a fresh optimizer. The example's attention has one linear layer more
(out_proj, then c_proj), which is multiplied into one; its mask adds 1 to scores of the past and 0 to those of the future
instead of hiding the future, so its weights compute something else in a causal model, and are a starting point at best.
"""

import argparse
import json
import pickle
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

CONV1D = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
NOT_WEIGHTS = (".attn.bias", ".attn.masked_bias", ".attn.mask")


class Refused(Exception):
    pass


class CharactersOnly(pickle.Unpickler):
    """meta.pkl holds dicts of characters and numbers: nothing that needs a class."""

    def find_class(self, module, name):
        raise Refused(f"--meta: asks for {module}.{name}, which no table of characters needs")


def plain_names(state):
    """Without the prefixes of torch.compile and DDP, and without masks."""
    names = {name.removeprefix("_orig_mod.").removeprefix("module."): tensor for name, tensor in state.items()}
    return {name: tensor.float() for name, tensor in names.items() if not name.endswith(NOT_WEIGHTS)}


def linear_zeros(weight):
    return torch.zeros(weight.shape[0])


def from_example(state):
    """Names and attention of minGPT-ddp's model.py."""
    result = {"transformer.wte.weight": state["emb_stem.tok_emb.weight"],
              "transformer.wpe.weight": state["emb_stem.pos_emb"][0],
              "transformer.ln_f.weight": state["ln_f.weight"], "transformer.ln_f.bias": state["ln_f.bias"],
              "lm_head.weight": state["head.weight"]}
    layer = 0
    while f"blocks.{layer}.ln1.weight" in state:
        there, here = f"blocks.{layer}.", f"transformer.h.{layer}."
        for kind in ("weight", "bias"):
            result[here + "ln_1." + kind] = state[there + "ln1." + kind]
            result[here + "ln_2." + kind] = state[there + "ln2." + kind]
            result[here + "attn.c_attn." + kind] = state[there + "attn.attn.in_proj_" + kind]
            result[here + "mlp.c_fc." + kind] = state[there + "mlp.0." + kind]
            result[here + "mlp.c_proj." + kind] = state[there + "mlp.2." + kind]
        outer, inner = state[there + "attn.c_proj.weight"], state[there + "attn.attn.out_proj.weight"]
        result[here + "attn.c_proj.weight"] = outer @ inner
        result[here + "attn.c_proj.bias"] = outer @ state[there + "attn.attn.out_proj.bias"] + state[there + "attn.c_proj.bias"]
        layer += 1
    return result


def with_biases(state):
    """nanoGPT may leave biases out (bias=False): zeros are the same."""
    full = dict(state)
    for name, tensor in state.items():
        bias = name.removesuffix("weight") + "bias"
        if name.startswith("transformer.") and name.endswith(".weight") and "wte" not in name and "wpe" not in name:
            full.setdefault(bias, linear_zeros(tensor))
    return full


def read_checkpoint(path):
    """The state dict with this model's names and what the checkpoint says of its configuration, activation included."""
    stored = torch.load(path, map_location="cpu", weights_only=True)
    settings = stored.get("model_args", {}) if isinstance(stored, dict) else {}
    state = stored
    for key in ("model_state", "MODEL_STATE", "model", "state_dict"):
        if isinstance(state, dict) and key in state:
            state = state[key]
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise Refused(f"{path}: holds no state dict under model, model_state or state_dict, nor is one")
    state = plain_names(state)
    if "emb_stem.tok_emb.weight" in state:
        print("warning: the example's mask does not hide the future: this is not a causal model's training", file=sys.stderr)
        return from_example(state), settings, "gelu"
    if "transformer.wte.weight" not in state:
        raise Refused(f"{path}: has neither transformer.wte.weight (nanoGPT, minGPT) nor emb_stem.tok_emb.weight (the example)")
    # nanoGPT: nn.GELU(); minGPT: NewGELU, as GPT-2.
    return with_biases(state), settings, "gelu" if "model_args" in stored else "gelu_new"


def gpt2_config(state, n_head, activation):
    vocab, width = state["transformer.wte.weight"].shape
    layers = sum(1 for name in state if name.endswith(".attn.c_attn.weight"))
    tied = "lm_head.weight" not in state or torch.equal(state["lm_head.weight"], state["transformer.wte.weight"])
    if width % n_head:
        raise Refused(f"--n_head: {n_head} does not divide the width {width}")
    return {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": vocab,
            "n_positions": state["transformer.wpe.weight"].shape[0], "n_embd": width, "n_layer": layers, "n_head": n_head,
            "activation_function": activation, "layer_norm_epsilon": 1e-5, "tie_word_embeddings": tied,
            "bos_token_id": None, "eos_token_id": None, "torch_dtype": "float32"}


def characters(args):
    if args.meta:
        with open(args.meta, "rb") as file:
            table = CharactersOnly(file).load()["itos"]
        return [table[i] for i in range(len(table))]
    if args.data:
        text = Path(args.data).read_text(encoding="utf-8")
        return sorted(set(text[:int(len(text) * args.truncate)]))
    return None


def character_tokenizer(found):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
            "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "[\\s\\S]"}, "behavior": "Isolated", "invert": False},
            "post_processor": None, "decoder": {"type": "Fuse"},
            "model": {"type": "WordLevel", "vocab": {c: i for i, c in enumerate(found)}, "unk_token": "<unk>"}}


def write_folder(folder, state, config, found):
    folder.mkdir(parents=True, exist_ok=True)
    if config["tie_word_embeddings"]:
        state.pop("lm_head.weight", None)
    save_file({name: (tensor.t() if name.endswith(CONV1D) else tensor).contiguous() for name, tensor in state.items()},
              str(folder / "model.safetensors"), metadata={"format": "pt"})
    files = {"config.json": config}
    if found is not None:
        if len(found) != config["vocab_size"]:
            raise Refused(f"the text has {len(found)} different characters, the model {config['vocab_size']} tokens; "
                          "give the text and --truncate of the training")
        files["tokenizer.json"] = character_tokenizer(found)
        files["tokenizer_config.json"] = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False,
                                          "model_max_length": config["n_positions"]}
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("output", type=Path)
    parser.add_argument("--n_head", type=int)
    parser.add_argument("--activation", choices=("gelu", "gelu_new"))
    parser.add_argument("--data")
    parser.add_argument("--truncate", type=float, default=1.0)
    parser.add_argument("--meta")
    args = parser.parse_args()
    try:
        state, settings, activation = read_checkpoint(args.checkpoint)
        n_head = args.n_head or settings.get("n_head")
        if not n_head:
            raise Refused("--n_head: the checkpoint does not say how many attention heads it has; give the number")
        config = gpt2_config(state, n_head, args.activation or activation)
        write_folder(args.output, state, config, characters(args))
    except (Refused, OSError, pickle.UnpicklingError, KeyError, RuntimeError) as error:
        print(f"convert_checkpoint.py: {str(error).splitlines()[0]}", file=sys.stderr)
        return 2
    print(f"{args.output}: n_layer {config['n_layer']}, n_head {n_head}, n_embd {config['n_embd']}, "
          f"{config['vocab_size']} tokens, {config['n_positions']} positions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
