"""What trainer eval is measured against: the loss and accuracy of a snapshot's weights on a text, in plain PyTorch.

peer_train.py's model in eval mode under inference_mode, a DataLoader over windows that do not overlap. The weights are those
of trainer's snapshot, a safetensors file, so that both must come to the same loss. Prints `loss L accuracy A tokens N`.
"""

import argparse

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch.utils.data import DataLoader

from peer_train import CharDataset, Gpt


class Windows(CharDataset):
    def __init__(self, path, block, characters_of):
        super().__init__(path, block)
        known = {c: i for i, c in enumerate(sorted(set(characters_of)))}
        with open(path, encoding="utf-8") as file:
            self.tokens = torch.tensor([known[c] for c in file.read()])

    def __len__(self):
        return (len(self.tokens) - 1) // self.block

    def __getitem__(self, i):
        return super().__getitem__(i * self.block)


def their_name(name):
    name = name.removeprefix("model.").removeprefix("transformer.").replace("mlp.", "").replace("lm_head", "head")
    return "blocks." + name.removeprefix("h.") if name.startswith("h.") else name


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("snapshot")
    parser.add_argument("training_text", help="its characters are the vocabulary")
    parser.add_argument("text")
    for name in ("layers", "heads", "width", "block", "batch"):
        parser.add_argument("--" + name, type=int, required=True)
    args = parser.parse_args()
    args.dropout = 0.0
    with open(args.training_text, encoding="utf-8") as file:
        characters = file.read()
    model = Gpt(args, len(set(characters)))
    model.load_state_dict({their_name(name): t for name, t in load_file(args.snapshot).items() if name.startswith("model.")})
    model.eval()
    loss, right, tokens = 0.0, 0, 0
    with torch.inference_mode():
        for inputs, targets in DataLoader(Windows(args.text, args.block, characters), args.batch):
            logits = model.logits(inputs).flatten(0, 1)
            loss += F.cross_entropy(logits, targets.flatten(), reduction="sum").item()
            right += (logits.argmax(-1) == targets.flatten()).sum().item()
            tokens += targets.numel()
    print(f"loss {loss / tokens:.6f} accuracy {right / tokens:.6f} tokens {tokens}")


if __name__ == "__main__":
    main()
