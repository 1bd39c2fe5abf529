"""trainer export --format gguf beside llama.cpp's package gguf: names by its table, types and numbers by its quantizers, and what the keys of model and tokenizer say."""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from support import DDP_RUN, PATIENCE, PEERS, need_here

os.environ.update(TRANSFORMERS_VERBOSITY="error", HF_HUB_OFFLINE="1", HF_HUB_DISABLE_PROGRESS_BARS="1", OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")
need_here("transformers")
sys.path.append(PEERS)
if not importlib.util.find_spec("gguf"):
    print("[skipped] gguf is not in .cache/peers: bash .ci/run setup")
    sys.exit(0)
import gguf
import torch
from gguf import GGMLQuantizationType as Type
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

import test_chat_templates as templates
import test_model_tokenizers as made

torch.set_num_threads(1)
TRAINER = DDP_RUN.parent / "trainer"
TYPES = {"f32": Type.F32, "f16": Type.F16, "bf16": Type.BF16, "q8_0": Type.Q8_0}
# Its architecture and type are those of others: llama3, gpt2.
LONG = {"Gguf.test_yarn_is_what_the_package_makes_of_it"}
FILE_TYPES = {"f32": 0, "f16": 1, "q8_0": 7, "bf16": 32}
POSITIONS = 128
SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": POSITIONS}
GEMMA = {**SIZES, "num_hidden_layers": 3, "head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 9}
LLAMA3_ROPE = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}


def gpt2_tokenizer():
    return made.byte_level(made.pre_tokenizers.ByteLevel(add_prefix_space=False), ["<|endoftext|>"], 600)


def llama2_tokenizer():
    return made.of_model(made.sentencepiece_model(), normalizer=made.PREPEND)


# Name: model_type, architecture there, type, tokenizer, its special tokens, configuration, keys that the file has besides those of all.
KINDS = {
    "gpt2": ("gpt2", "gpt2", "f16", gpt2_tokenizer, {"eos_token": "<|endoftext|>"},
             {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": POSITIONS},
             {"attention.layer_norm_epsilon": 1e-5, "feed_forward_length": 256}),
    "llama3": ("llama", "llama", "q8_0", made.llama3, {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"},
               {**SIZES, "rope_theta": 500.0, "rope_scaling": LLAMA3_ROPE}, {"rope.dimension_count": 16, "rope.freq_base": 500.0}),
    "llama2": ("llama", "llama", "f32", llama2_tokenizer, {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}, {**SIZES, "tie_word_embeddings": False},
               {"rope.dimension_count": 16}),
    "yarn": ("llama", "llama", "f16", made.smollm2, {"eos_token": "<|im_end|>"}, {**SIZES, "rope_scaling": YARN, "tie_word_embeddings": True},
             {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 32}),
    "mistral": ("mistral", "llama", "bf16", llama2_tokenizer, {"bos_token": "<s>", "eos_token": "</s>"}, {**SIZES, "head_dim": 32, "sliding_window": 50},
                {"context_length": 50, "attention.key_length": 32}),
    "qwen2": ("qwen2", "qwen2", "q8_0", made.qwen, {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}, {**SIZES, "tie_word_embeddings": True}, {}),
    "qwen3": ("qwen3", "qwen3", "bf16", made.qwen, {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}, {**SIZES, "head_dim": 32}, {"attention.value_length": 32}),
    "mixtral": ("mixtral", "llama", "q8_0", llama2_tokenizer, {"bos_token": "<s>", "eos_token": "</s>"}, {**SIZES, "num_local_experts": 4, "num_experts_per_tok": 2},
                {"expert_count": 4, "expert_used_count": 2}),
    "qwen3_moe": ("qwen3_moe", "qwen3moe", "bf16", made.qwen, {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"},
                  {**SIZES, "head_dim": 32, "moe_intermediate_size": 48, "num_experts": 12, "num_experts_per_tok": 3, "norm_topk_prob": True},
                  {"expert_count": 12, "expert_used_count": 3, "expert_feed_forward_length": 48, "feed_forward_length": 48}),
    "phi3": ("phi3", "phi3", "q8_0", llama2_tokenizer, {"bos_token": "<s>", "eos_token": "</s>"}, {**SIZES, "sliding_window": None, "pad_token_id": 0},
             {"rope.dimension_count": 16, "attention.sliding_window": 0}),
    "gemma2": ("gemma2", "gemma2", "bf16", made.gemma, {"bos_token": "<s>", "eos_token": "</s>"}, GEMMA,
               {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "attention.sliding_window": 9}),
    "gemma3": ("gemma3_text", "gemma3", "q8_0", made.gemma, {"bos_token": "<s>", "eos_token": "</s>"}, {**GEMMA, "num_hidden_layers": 6},
               {"rope.freq_base": 1e6, "rope.freq_base_swa": 1e4, "attention.sliding_window": 9}),
}


def save(folder, kind):
    """A folder of a model with random weights, norms and biases included. Returns the model and the tokenizer of Python's tokenizers."""
    model_type, _, _, tokenizer, special, config, _ = KINDS[kind]
    peer = tokenizer()
    PreTrainedTokenizerFast(tokenizer_object=peer, chat_template=templates.LLAMA3, **special).save_pretrained(folder)
    ids = {f"{name}_id": peer.token_to_id(token) for name, token in special.items()}
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, vocab_size=peer.get_vocab_size(), **{**ids, **config}))
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(0, 0.2)
    model.save_pretrained(folder)
    return model, peer


def permuted(rows, heads):
    """Llama's rotary embeddings turn a number of a head's first half with one of the second; llama.cpp's turn neighbours."""
    pairs = rows.reshape(heads, 2, -1, rows.shape[1])
    return torch.stack([pairs[:, 0], pairs[:, 1]], dim=2).reshape(rows.shape)


def with_experts_apart(state):
    """All experts of a layer are one tensor [experts, out, in], as in llama.cpp, but gate and up are one in transformers 5."""
    apart = {}
    for name, weight in state.items():
        if name.endswith("experts.gate_up_proj"):
            for part, half in zip(("gate_proj", "up_proj"), weight.chunk(2, dim=1)):
                apart[name.replace("gate_up_proj", f"{part}.weight")] = half
        else:
            apart[name + ".weight" * name.endswith("experts.down_proj")] = weight
    return apart


def expected_tensors(model, kind):
    """By name, as numbers in float32."""
    architecture = next(each for each, name in gguf.MODEL_ARCH_NAMES.items() if name == KINDS[kind][1])
    names = gguf.get_tensor_name_map(architecture, model.config.num_hidden_layers)
    weights = {}
    for name, weight in with_experts_apart(model.state_dict()).items():
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        if kind == "gpt2" and name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")):
            weight = weight.t()
        if "gemma" in kind and name.endswith("norm.weight"):
            weight = weight + 1
        for part, heads in ("q_proj.weight", 4), ("k_proj.weight", 2):
            if KINDS[kind][1] == "llama" and name.endswith(part):
                weight = permuted(weight, heads)
        weights[names.get_name(name, (".weight", ".bias"))] = weight.float().contiguous().numpy()
    return weights


def type_of(name, shape, wanted):
    if len(shape) < 2 or name == "position_embd.weight" or name.endswith("ffn_gate_inp.weight"):
        return Type.F32
    return wanted if wanted != Type.Q8_0 or shape[-1] % 32 == 0 else Type.F16


class Gguf(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def trainer(self, *words, code=0):
        done = subprocess.run([TRAINER, *map(str, words)], cwd=self.folder, capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def export(self, dtype, code=0):
        return self.trainer("export", "--snapshot", "base", "--output", "out", "--format", "gguf", "--dtype", dtype, code=code)

    def check_tensors(self, reader, model, kind):
        wanted = expected_tensors(model, kind)
        tensors = {tensor.name: tensor for tensor in reader.tensors}
        if kind == "llama3":
            self.check_rope_factors(tensors.pop("rope_freqs.weight").data, model)
        self.assertEqual(set(tensors), set(wanted))
        for name, weight in wanted.items():
            with self.subTest(tensor=name):
                type = type_of(name, weight.shape, TYPES[KINDS[kind][2]])
                self.assertEqual((tensors[name].tensor_type, list(tensors[name].shape)), (type, list(reversed(weight.shape))))
                self.assertEqual(tensors[name].data.tobytes(), gguf.quants.quantize(weight, type).tobytes())

    def check_rope_factors(self, factors, model):
        plain = 1 / 500.0 ** (torch.arange(0, 16, 2, dtype=torch.float32) / 16)
        self.assertTrue(torch.allclose(plain / torch.from_numpy(factors.copy()), model.model.rotary_emb.inv_freq, rtol=1e-6))

    def check_keys(self, keys, kind):
        _, architecture, dtype, _, _, config, own = KINDS[kind]
        size = lambda mine, theirs: config.get(mine, config.get(theirs))
        wanted = {"block_count": size("n_layer", "num_hidden_layers"), "context_length": POSITIONS, "embedding_length": 64,
                  "attention.head_count": 4, **({} if kind == "gpt2" else {"attention.head_count_kv": 2, "feed_forward_length": 96}), **own}
        self.assertEqual(keys["general.architecture"], architecture)
        self.assertEqual(keys["general.file_type"], FILE_TYPES[dtype])
        self.assertEqual(keys["general.name"], "out")
        for name, value in wanted.items():
            self.assertAlmostEqual(keys[f"{architecture}.{name}"], value, msg=name) if not isinstance(value, str) else self.assertEqual(keys[f"{architecture}.{name}"], value)

    def check_tokenizer(self, keys, peer, kind):
        special = KINDS[kind][4]
        model, added = json.loads(peer.to_str())["model"], peer.get_added_tokens_decoder()
        ids = {id: token for token, id in model["vocab"].items()} | {id: token.content for id, token in added.items()}
        tokens = [ids[id] for id in range(len(ids))]
        self.assertEqual(keys["tokenizer.ggml.tokens"], tokens)
        self.assertEqual(keys["tokenizer.chat_template"], templates.LLAMA3)
        for name, key in ("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"):
            if f"{name}_token" in special:
                self.assertEqual(keys[f"tokenizer.ggml.{key}_token_id"], peer.token_to_id(special[f"{name}_token"]))
        begins = peer.encode("a").ids != peer.encode("a", add_special_tokens=False).ids
        self.assertEqual(keys["tokenizer.ggml.add_bos_token"], begins)
        types = keys["tokenizer.ggml.token_type"]
        self.assertEqual([id for id, type in enumerate(types) if type in (3, 4)], sorted(added))
        self.assertEqual([id for id, type in enumerate(types) if type == 4], sorted(id for id, token in added.items() if not token.special))
        if not model["byte_fallback"]:
            self.assertEqual(keys["tokenizer.ggml.model"], "gpt2")
            self.assertEqual(keys["tokenizer.ggml.merges"], [" ".join(pair) for pair in model["merges"]])
            pre = {"gpt2": "gpt-2", "llama3": "llama-bpe", "yarn": "smollm"}.get(kind, "qwen2")
            self.assertEqual(keys["tokenizer.ggml.pre"], pre)
            return
        self.assertEqual((keys["tokenizer.ggml.model"], keys["tokenizer.ggml.pre"]), ("llama", "default"))
        self.assertEqual(keys["tokenizer.ggml.add_space_prefix"], "gemma" not in kind)
        self.assertEqual([tokens[id] for id, type in enumerate(types) if type == 6], [f"<0x{byte:02X}>" for byte in range(256)])
        score = dict(zip(tokens, keys["tokenizer.ggml.scores"]))
        results = list(dict.fromkeys("".join(pair) for pair in model["merges"]))
        self.assertEqual([score[token] for token in results], [-float(rank) for rank in range(len(results))])

    def check(self, kind):
        model, peer = save(self.folder / "base", kind)
        error = self.export(KINDS[kind][2]).stderr
        self.assertEqual(error.count("\n"), 1 if kind == "mistral" else 0, error)
        reader = gguf.GGUFReader(self.folder / "out/model.gguf")
        keys = {name: field.contents() for name, field in reader.fields.items()}
        self.check_tensors(reader, model, kind)
        self.check_keys(keys, kind)
        self.check_tokenizer(keys, peer, kind)

    def refused(self, *words):
        error = self.trainer(*words, code=2).stderr
        self.assertEqual(error.count("\n"), 1, error)
        self.assertFalse((self.folder / "out/model.gguf").exists())
        return error

    def test_what_llama_cpp_would_compute_otherwise_is_refused(self):
        KINDS["other"] = (*KINDS["gemma2"][:5], {**GEMMA, "query_pre_attn_scalar": 24}, {})
        self.addCleanup(KINDS.pop, "other")
        save(self.folder / "base", "other")
        to_out = ["export", "--snapshot", "base", "--output", "out"]
        self.assertIn("--format gguf: llama.cpp takes 16 for query_pre_attn_scalar=24; use --format huggingface", self.refused(*to_out, "--format", "gguf"))
        KINDS["other"] = (*KINDS["qwen3_moe"][:5], {**KINDS["qwen3_moe"][5], "norm_topk_prob": False}, {})
        save(self.folder / "base", "other")
        self.assertIn("--format gguf: llama.cpp has no qwen3moe with norm_topk_prob=false; use --format huggingface", self.refused(*to_out, "--format", "gguf"))
        self.assertIn("--dtype q8_0: is for --format gguf; use fp32, bf16 or fp16", self.refused(*to_out, "--dtype", "q8_0"))

    def test_a_character_model_is_refused_and_a_number_beyond_the_type(self):
        (self.folder / "text.txt").write_text("Some characters.\n" * 50)
        (self.folder / "config.yaml").write_text("""
data_config: {path: text.txt, block_size: 16}
gpt_config: {n_layer: 1, n_head: 1, n_embd: 32}
trainer_config: {max_steps: 1, batch_size: 2, device: cpu, snapshot_path: tuned.pt}
hydra: {run: {dir: .}}
""")
        self.trainer("--config", "config.yaml")
        self.assertIn("--format gguf: llama.cpp has no char tokenizer", self.refused("export", "--snapshot", "tuned.pt", "--output", "out", "--format", "gguf"))
        model, _ = save(self.folder / "base", "qwen2")
        with torch.no_grad():
            model.model.layers[1].mlp.down_proj.weight[3, 5] = -1e7
        model.save_pretrained(self.folder / "base")
        error = self.refused("export", "--snapshot", "base", "--output", "out", "--format", "gguf", "--dtype", "q8_0")
        self.assertIn("model.layers.1.mlp.down_proj.weight has numbers beyond the range of q8_0; use --dtype bf16 or fp32", error)
        self.assertEqual(list((self.folder / "out").iterdir()), [])


for kind in KINDS:
    setattr(Gguf, f"test_{kind}_is_what_the_package_makes_of_it", lambda self, kind=kind: self.check(kind))

if __name__ == "__main__":
    unittest.main()
