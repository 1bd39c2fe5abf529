"""Writes llama/ and llama-nf4/, a small Llama as transformers saves it without and with bitsandbytes, and
expected.safetensors, what transformers computes with the second one: for quantized_interop_test.cc. Made with
bitsandbytes 0.50.2, transformers 5.23.0 and torch 2.15.0.

  python quantized_llama.py
"""

from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig

HERE = Path(__file__).parent


def main():
    torch.manual_seed(3)
    config = LlamaConfig(vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=4,
                         num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5, initializer_range=0.1)
    model = AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
    model.save_pretrained(HERE / "llama")
    how = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
                             bnb_4bit_compute_dtype=torch.float32)
    quantized = AutoModelForCausalLM.from_pretrained(HERE / "llama", quantization_config=how, dtype=torch.float32,
                                                     device_map="cpu").eval()
    quantized.save_pretrained(HERE / "llama-nf4")
    inputs = torch.randint(0, 64, (2, 32))
    with torch.no_grad():
        logits = quantized(inputs).logits
    save_file({"inputs": inputs, "logits": logits}, HERE / "expected.safetensors")


main()
