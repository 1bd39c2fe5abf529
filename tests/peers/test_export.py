"""What trainer export carries along of the model that a run started from, as transformers reads it: tokenizer and template, special ids, sampling defaults,
positions and the type of the weights. Generation from a folder ends where transformers' does. Folders whose files contradict each other."""

import functools
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from support import DDP_RUN, PATIENCE, PEERS, need_here

os.environ.update(TRANSFORMERS_VERBOSITY="error", HF_HUB_OFFLINE="1", HF_HUB_DISABLE_PROGRESS_BARS="1", OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")
need_here("transformers")
import torch
from safetensors.torch import load_file, save_file
from transformers import (AutoConfig, AutoModelForCausalLM, AutoTokenizer, BertConfig, BertForMaskedLM, GenerationConfig, GPT2Config, GPT2LMHeadModel, LlamaConfig,
                          LlamaForCausalLM, PreTrainedTokenizerFast)

import test_chat_templates as templates
import test_model_tokenizers as made

torch.set_num_threads(1)
TRAINER = DDP_RUN.parent / "trainer"
TEXT = "The quick brown fox jumps over the lazy dog, and the dog sleeps on.\n" * 60
CHATS = "".join(json.dumps({"messages": [{"role": "user", "content": f"Say {i}"}, {"role": "assistant", "content": f"It is {i}."}]}) + "\n" for i in range(20))
CONFIG = """
data_config: {path: text.txt, block_size: 64}
trainer_config: {max_steps: 2, batch_size: 2, device: cpu, snapshot_path: tuned.pt}
hydra: {run: {dir: .}}
"""
CHAT = ["data_config.format=chat", "data_config.path=chats.jsonl", "data_config.eval_path=chats.jsonl"]
ADDED = ["<tool>", "naïve"]
ADD = "data_config.add_tokens=['<tool>', 'naïve']"
SAMPLING = {"do_sample": True, "temperature": 0.6, "top_p": 0.9}
# And whether it is tied.
LLAMA, TIED_LLAMA, GPT = ("llama", False), ("llama", True), ("gpt", True)
# The same with the other models.
LONG = {"Export.test_adapters_of_two_padded_tables_have_their_rows_in_files_of_peft", "Export.test_tokens_that_were_added_to_the_tokenizer_of_other_models",
        "Export.test_tokens_that_the_configuration_adds_to_other_models", "Export.test_rows_of_added_tokens_are_trained_next_to_adapters_of_other_models"}


def write(path, value):
    path.write_text(json.dumps(value, indent=2))


def tokenizer_of(peer, special, length, template=None):
    return PreTrainedTokenizerFast(tokenizer_object=peer, model_max_length=length, chat_template=template, **special)


@functools.cache
def made_llama(template, eos, config):
    """As the instruction-tuned Llama 3: the model's ids differ from the tokenizer's tokens, and it has more positions than any run here."""
    folder = Path(tempfile.mkdtemp())
    unittest.addModuleCleanup(shutil.rmtree, folder)
    peer = made.llama3()
    begin, end, turn, pad = (peer.token_to_id(token) for token in ("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|reserved_special_token_7|>"))
    special = {"bos_token": "<|begin_of_text|>", "eos_token": eos, "pad_token": "<|reserved_special_token_7|>"}
    tokenizer_of(peer, special, 4096, template).save_pretrained(folder)
    write(folder / "special_tokens_map.json", special)
    ends = [end, turn] if eos == "<|eot_id|>" else end
    torch.manual_seed(1)
    model = LlamaForCausalLM(LlamaConfig(**{"vocab_size": peer.get_vocab_size(), "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
                                            "max_position_embeddings": 4096, "bos_token_id": begin, "eos_token_id": ends, "pad_token_id": pad, **dict(config)}))
    model.to(torch.bfloat16).save_pretrained(folder)
    GenerationConfig(bos_token_id=begin, eos_token_id=ends, pad_token_id=pad, **SAMPLING).save_pretrained(folder)
    return folder


def llama(folder, template=templates.LLAMA3, eos="<|eot_id|>", **config):
    """Into `folder` a copy of one that is made once."""
    shutil.copytree(made_llama(template, eos, tuple(config.items())), folder, dirs_exist_ok=True)


def facts(folder):
    """What transformers makes of a folder, besides the weights' values."""
    tokenizer, config = AutoTokenizer.from_pretrained(folder), AutoConfig.from_pretrained(folder)
    generation = GenerationConfig.from_pretrained(folder).to_diff_dict()
    generation.pop("transformers_version")
    config = config.to_dict()
    for name in ("transformers_version", "_name_or_path"):
        config.pop(name, None)
    return {"config": config, "generation": generation, "special": tokenizer.special_tokens_map, "length": tokenizer.model_max_length, "template": tokenizer.chat_template,
            "ids": tokenizer("The dog<|eot_id|> sleeps.")["input_ids"]}


class Place(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        for name, text in (("config.yaml", CONFIG), ("text.txt", TEXT), ("chats.jsonl", CHATS)):
            (self.folder / name).write_text(text)
        self.base = self.folder / "base"
        self.base.mkdir()

    def trainer(self, *words, code=0):
        done = subprocess.run([TRAINER, *map(str, words)], cwd=self.folder, capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def refused(self, *words):
        """The one line of a command that is refused."""
        error = self.trainer(*words, code=2).stderr
        self.assertEqual(error.count("\n"), 1, error)
        return error

    def edit(self, name, **values):
        path = self.base / name
        write(path, {**json.loads(path.read_text()), **values})


class Export(Place):
    def train(self, *overrides, model="llama"):
        self.trainer("--config", "config.yaml", f"model={model}", f"{model}_config.init_from=base", *overrides)

    def export(self, *options, snapshot="tuned.pt"):
        """Returns the folder and what was said on standard error."""
        out = self.folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        done = self.trainer("export", "--snapshot", snapshot, "--output", "out", *options)
        return out, done.stderr

    def fewer(self, key, before):
        return f"note: export: {key} is 64 (the run's data_config.block_size); {self.base} has {before}\n"

    def check_like_base(self, *options, snapshot="tuned.pt", said=""):
        expected = facts(self.base if self.base.exists() else self.folder / "moved")
        out, error = self.export(*options, snapshot=snapshot)
        self.assertEqual(facts(out), expected)
        self.assertEqual(AutoModelForCausalLM.from_pretrained(out).dtype, torch.bfloat16)
        self.assertEqual(error, said)
        return out

    def check_chats(self):
        told = self.trainer("generate", "--snapshot", "tuned.pt", "--chat", "--prompt", "Hi", "--max_new_tokens", "3", "--device", "cpu")
        self.assertIn("tokens/s", told.stderr)

    def test_an_untrained_folder_is_exported_as_it_is(self):
        llama(self.base)
        out = self.check_like_base(snapshot="base")
        theirs, ours = load_file(self.base / "model.safetensors"), load_file(out / "model.safetensors")
        self.assertEqual(theirs.keys(), ours.keys())
        self.assertTrue(all(torch.equal(theirs[name], ours[name]) and theirs[name].dtype == ours[name].dtype for name in theirs))
        for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "generation_config.json"):
            self.assertEqual((out / name).read_bytes(), (self.base / name).read_bytes(), name)

    def test_an_instruction_tuned_model_stays_one(self):
        llama(self.base)
        for name, overrides in (("chat", CHAT), ("lora", ["lora.rank=2"])):
            with self.subTest(trained_on=name):
                (self.folder / "tuned.pt").unlink(missing_ok=True)
                self.train(*overrides)
                self.check_like_base(*(["--merge"] if name == "lora" else []))
                self.check_chats()

    def test_a_base_that_has_moved_is_exported_from_what_the_snapshot_holds(self):
        llama(self.base)
        (self.base / "tokenizer.model").write_bytes(b"\x00\xff")
        self.train()
        self.check_like_base()
        self.check_chats()
        self.trainer("--config", "config.yaml", "model=llama", "llama_config.init_from=tuned.pt", "trainer_config.snapshot_path=further.pt")
        self.base.rename(self.folder / "moved")
        for snapshot in ("tuned.pt", "further.pt"):
            self.check_like_base(snapshot=snapshot, said=f"warning: export: {self.base} is no longer there, so that these are not carried along: tokenizer.model; name the "
                                 "folder of that model with --base\n")
        out = self.check_like_base("--base", "moved")
        self.assertEqual((out / "tokenizer.model").read_bytes(), b"\x00\xff")
        self.assertIn("no such folder", self.trainer("export", "--snapshot", "tuned.pt", "--output", "out", "--base", "nowhere", code=2).stderr)
        llama(self.base, hidden_size=64)
        error = self.trainer("export", "--snapshot", "tuned.pt", "--output", "out", "--base", "base", code=2).stderr
        self.assertIn("config.json: hidden_size is 64 there, 32 in the snapshot", error)

    def test_adapters_find_a_base_that_has_moved(self):
        llama(self.base)
        self.train("lora.rank=2")
        modes = {"generate": ["--prompt", "The", "--max_new_tokens", "2", "--greedy"], "eval": [], "export": ["--merge", "--output", "out"]}
        before = {mode: self.trainer(mode, "--snapshot", "tuned.pt", *words).stdout for mode, words in modes.items()}
        self.base.rename(self.folder / "moved")
        for mode, words in modes.items():
            with self.subTest(mode):
                error = self.trainer(mode, "--snapshot", "tuned.pt", *words, code=2).stderr
                self.assertEqual((error.count("\n"), "--base" in error), (1, True), error)
                self.assertEqual(self.trainer(mode, "--snapshot", "tuned.pt", "--base", "moved", *words).stdout, before[mode])
        self.check_like_base("--merge", "--base", "moved")
        llama(self.base, template=None)
        weights = load_file(self.base / "model.safetensors")
        save_file({name: tensor + 1 for name, tensor in weights.items()}, self.base / "model.safetensors", metadata={"format": "pt"})
        self.assertIn("is not the model that the adapters", self.trainer("generate", "--snapshot", "tuned.pt", "--base", "base", "--prompt", "a", code=2).stderr)
        self.assertIn("--base: moved is a whole model", self.trainer("generate", "--snapshot", "moved", "--base", "base", "--prompt", "a", code=2).stderr)

    def check_padded_tables(self, tied):
        """Their adapters have their rows in files of peft."""
        sys.path.append(PEERS)
        if not importlib.util.find_spec("peft"):
            self.skipTest("peft is not in .cache/peers: bash .ci/run setup")
        from peft import PeftModel
        tokens = made.llama3().get_vocab_size()
        rows = (tokens // 64 + 1) * 64
        llama(self.base, vocab_size=rows, tie_word_embeddings=tied)
        base = AutoModelForCausalLM.from_pretrained(self.base, dtype=torch.float32).eval()
        base.save_pretrained(self.base)
        adapters = ["lora.rank=2", "lora.targets=[q_proj, embed_tokens, lm_head]", "optimizer_config.learning_rate=0.1"]
        self.train(*adapters, "trainer_config.max_steps=10")
        out = self.export("--format", "peft")[0]
        shapes = {name: tuple(tensor.shape) for name, tensor in load_file(out / "adapter_model.safetensors").items() if ".layers." not in name}
        self.assertEqual(set(shapes.values()), {(2, rows), (rows, 2), (32, 2), (2, 32)})
        ids = torch.arange(tokens).view(1, -1)[:, -60:]
        theirs = PeftModel.from_pretrained(base, out).eval()
        theirs.save_pretrained(self.folder / "theirs")
        with torch.no_grad():
            learned = theirs(ids).logits[..., :tokens]
            self.assertGreater((learned - theirs.get_base_model().lm_head.base_layer(theirs.get_base_model().model(ids)[0])[..., :tokens]).abs().max(), 0.01)
        merged = AutoModelForCausalLM.from_pretrained(self.export("--merge", "--dtype", "fp32")[0]).eval()
        self.assertFalse(merged.config.tie_word_embeddings)
        self.assertEqual(merged.config.vocab_size, tokens)
        self.assertLess((merged(ids).logits - learned).abs().max(), 1e-4)
        self.train("lora.init_from=theirs", "trainer_config.max_steps=1", "optimizer_config.learning_rate=1e-30", "trainer_config.snapshot_path=further.pt")
        again = AutoModelForCausalLM.from_pretrained(self.export("--merge", "--dtype", "fp32", snapshot="further.pt")[0]).eval()
        self.assertLess((again(ids).logits - learned).abs().max(), 1e-4)

    def test_adapters_of_a_padded_tied_table_have_their_rows_in_files_of_peft(self):
        self.check_padded_tables(tied=True)

    def test_adapters_of_two_padded_tables_have_their_rows_in_files_of_peft(self):
        self.check_padded_tables(tied=False)

    def test_a_base_model_that_learns_to_chat_learns_to_stop(self):
        llama(self.base, template=None, eos="<|end_of_text|>")
        shutil.copytree(self.base, self.folder / "chats")
        (self.folder / "chats/chat_template.jinja").write_text(templates.LLAMA3)
        config = json.loads((self.base / "tokenizer_config.json").read_text())
        write(self.folder / "chats/tokenizer_config.json", {**config, "eos_token": "<|eot_id|>"})
        special = json.loads((self.base / "special_tokens_map.json").read_text())
        write(self.folder / "chats/special_tokens_map.json", {**special, "eos_token": "<|eot_id|>"})
        before = facts(self.base)
        self.train(*CHAT, "data_config.tokenizer=chats")
        after = facts(self.export()[0])
        turn = AutoTokenizer.from_pretrained(self.base).convert_tokens_to_ids("<|eot_id|>")
        self.assertEqual(after, {**before, "template": templates.LLAMA3, "special": {**before["special"], "eos_token": "<|eot_id|>"},
                                 "generation": {**before["generation"], "eos_token_id": [before["generation"]["eos_token_id"], turn]}})

    def resized_for(self, tokenizer):
        """The base as transformers grows it, but with the mean itself."""
        peer = AutoModelForCausalLM.from_pretrained(self.base, dtype=torch.float32).eval()
        rows = peer.get_input_embeddings().weight.shape[0]
        peer.resize_token_embeddings(len(tokenizer), mean_resizing=False)
        with torch.no_grad():
            for table in (peer.get_input_embeddings().weight, peer.get_output_embeddings().weight):
                table[rows:] = table[:rows].double().mean(0).float()
        return peer

    def grow(self, model, tied):
        """A base, and its tokenizer with three more tokens in the folder grown. Returns the model as transformers grows it, but with the mean itself."""
        if model == "llama":
            llama(self.base, tie_word_embeddings=tied)
        else:
            peer = made.byte_level(made.pre_tokenizers.ByteLevel(add_prefix_space=False), ["<|endoftext|>"], 600)
            tokenizer_of(peer, {"eos_token": "<|endoftext|>"}, 64, templates.CHATML).save_pretrained(self.base)
            torch.manual_seed(1)
            GPT2LMHeadModel(GPT2Config(vocab_size=peer.get_vocab_size(), n_embd=32, n_layer=2, n_head=2, n_positions=64)).save_pretrained(self.base)
        tokenizer = AutoTokenizer.from_pretrained(self.base)
        tokenizer.add_tokens(["<tool>", "naïve"])
        tokenizer.add_special_tokens({"additional_special_tokens": ["<|think|>"]})
        tokenizer.save_pretrained(self.folder / "grown")
        return tokenizer, self.resized_for(tokenizer)

    def check_tokens_of_the_tokenizer(self, models):
        """They begin as the mean, and are learned."""
        (self.folder / "text.txt").write_text("A <tool> is naïve, <|think|>and so on.\n" * 80)
        for model, tied in models:
            with self.subTest(model=model, tied=tied):
                shutil.rmtree(self.base, ignore_errors=True)
                self.base.mkdir()
                tokenizer, peer = self.grow(model, tied)
                for name in ("still.pt", "tuned.pt"):
                    (self.folder / name).unlink(missing_ok=True)
                new = ["data_config.tokenizer=grown", "optimizer_config.weight_decay=0"]
                self.train(*new, "optimizer_config.learning_rate=1e-30", "trainer_config.snapshot_path=still.pt", model=model)
                self.assertIn("Vocabulary: 3 tokens more than the pretrained model's", (self.folder / "main.log").read_text())
                out, _ = self.export("--dtype", "fp32", snapshot="still.pt")
                ours, theirs = AutoModelForCausalLM.from_pretrained(out).eval(), AutoTokenizer.from_pretrained(out)
                text = "Is <tool><|think|> naïve? "
                ids = tokenizer(text)["input_ids"]
                self.assertEqual(theirs(text)["input_ids"], ids)
                self.assertEqual(ours.config.vocab_size, len(tokenizer))
                with torch.no_grad():
                    self.assertTrue(torch.allclose(ours(torch.tensor([ids])).logits, peer(torch.tensor([ids])).logits, atol=1e-6))
                for name, weight in peer.named_parameters():  # a step of 1e-30 changes zeros only
                    self.assertTrue(torch.allclose(ours.get_parameter(name), weight, rtol=0, atol=1e-28), name)
                self.train(*new, "optimizer_config.learning_rate=0.01", "trainer_config.max_steps=1", model=model)
                self.train(*new, "optimizer_config.learning_rate=0.01", model=model)  # resumes
                tuned = AutoModelForCausalLM.from_pretrained(self.export("--dtype", "fp32")[0]).get_input_embeddings().weight
                start = peer.get_input_embeddings().weight
                self.assertTrue(all((tuned[row] - start[row]).abs().max() > 0.005 for row in range(len(start) - 3, len(start))))

    def test_tokens_that_were_added_to_the_tokenizer_begin_as_the_mean_and_are_learned(self):
        self.check_tokens_of_the_tokenizer([TIED_LLAMA])

    def test_tokens_that_were_added_to_the_tokenizer_of_other_models(self):
        self.check_tokens_of_the_tokenizer([LLAMA, GPT])

    def test_a_tokenizer_with_other_tokens_and_adapters_for_new_ones_are_refused(self):
        tokenizer, _ = self.grow("llama", tied=True)
        command = ["--config", "config.yaml", "init_from=base", "data_config.tokenizer=grown"]
        self.assertIn("has 3 tokens that the model lacks; list them as data_config.add_tokens", self.refused(*command, "lora.rank=2"))
        grown = self.folder / "grown/tokenizer.json"
        tokens = json.loads(grown.read_text())
        vocabulary = tokens["model"]["vocab"]
        one, two = list(vocabulary)[:2]
        vocabulary[one], vocabulary[two] = vocabulary[two], vocabulary[one]
        write(grown, tokens)
        self.assertIn("is another vocabulary than that of llama_config.init_from=", self.refused(*command))

    def add(self, model, tied):
        """A base, and it with two more tokens as transformers adds them, but with the mean itself."""
        self.grow(model, tied)
        tokenizer = AutoTokenizer.from_pretrained(self.base)
        self.assertEqual(tokenizer.add_tokens(ADDED), 2)
        return tokenizer, self.resized_for(tokenizer)

    def logits(self, model, ids):
        with torch.no_grad():
            return model(torch.tensor([ids])).logits

    def check_resume(self, *overrides, model, export=()):
        """Four steps, and two after two, are the same."""
        files = []
        for snapshot, steps in (("whole.pt", (4,)), ("parts.pt", (2, 4))):
            (self.folder / snapshot).unlink(missing_ok=True)
            for count in steps:
                self.train(*overrides, "optimizer_config.lr_schedule=constant", f"trainer_config.max_steps={count}", f"trainer_config.snapshot_path={snapshot}", model=model)
            out, _ = self.export("--dtype", "fp32", *export, snapshot=snapshot)
            files.append((out / "model.safetensors").read_bytes())
        self.assertTrue(files[0] == files[1])

    def check_tokens_of_the_configuration(self, models):
        """They are those that transformers adds."""
        (self.folder / "text.txt").write_text("A <tool> is naïve, and so on.\n" * 80)
        for model, tied in models:
            with self.subTest(model=model, tied=tied):
                shutil.rmtree(self.base, ignore_errors=True)
                self.base.mkdir()
                tokenizer, peer = self.add(model, tied)
                ids = tokenizer("Is <tool> naïve<tool>? ")["input_ids"]
                self.train(ADD, "optimizer_config.weight_decay=0", "optimizer_config.learning_rate=1e-30", "trainer_config.snapshot_path=still.pt", model=model)
                self.assertIn("Vocabulary: 2 tokens more than the pretrained model's", (self.folder / "main.log").read_text())
                before = facts(self.base)
                out, error = self.export("--dtype", "fp32", snapshot="still.pt")
                after = facts(out)
                self.assertEqual({**after["config"], **dict.fromkeys(("vocab_size", "dtype", "n_positions", "n_ctx"))},
                                 {**before["config"], **dict.fromkeys(("vocab_size", "dtype", "n_positions", "n_ctx"))})
                self.assertEqual({name: after[name] for name in ("generation", "special", "template")}, {name: before[name] for name in ("generation", "special", "template")})
                self.assertEqual((AutoTokenizer.from_pretrained(out)("Is <tool> naïve<tool>? ")["input_ids"], error), (ids, ""))
                ours = AutoModelForCausalLM.from_pretrained(out).eval()
                self.assertEqual(ours.config.vocab_size, len(tokenizer))
                self.assertTrue(torch.allclose(self.logits(ours, ids), self.logits(peer, ids), atol=1e-6))
                self.assertIn("tokens/s", self.trainer("generate", "--snapshot", out, "--prompt", "A <tool>", "--max_new_tokens", "2").stderr)
                self.check_resume(ADD, "optimizer_config.learning_rate=0.01", model=model)
                tokenizer.save_pretrained(self.folder / "plain")
                for further in (f"{model}_config.init_from=still.pt", "data_config.tokenizer=plain"):  # without the key
                    self.train(further, "trainer_config.snapshot_path=further.pt", model=model)
                    for options in ([], ["--base", "base"]):
                        out, _ = self.export(*options, snapshot="further.pt")
                        self.assertEqual((AutoTokenizer.from_pretrained(out)("Is <tool> naïve<tool>? ")["input_ids"], AutoConfig.from_pretrained(out).vocab_size),
                                         (ids, len(tokenizer)), (further, options))
                    (self.folder / "further.pt").unlink()
                (self.folder / "still.pt").unlink()

    def test_tokens_that_the_configuration_adds_are_those_that_transformers_adds(self):
        self.check_tokens_of_the_configuration([GPT])

    def test_tokens_that_the_configuration_adds_to_other_models(self):
        self.check_tokens_of_the_configuration([LLAMA, TIED_LLAMA])

    def check_rows_next_to_adapters(self, models):
        """Of added tokens, as peft trains them."""
        sys.path.append(PEERS)
        if not importlib.util.find_spec("peft"):
            self.skipTest("peft is not in .cache/peers: bash .ci/run setup")
        from peft import LoraConfig, PeftModel, get_peft_model
        text = "".join(f"A <tool> is naïve, and so is {word}.\n" for word in TEXT.split()[:60])
        (self.folder / "text.txt").write_text(text)
        for model, tied in models:
            with self.subTest(model=model, tied=tied):
                shutil.rmtree(self.base, ignore_errors=True)
                self.base.mkdir()
                tokenizer, start = self.add(model, tied)
                rows = list(range(len(tokenizer) - 2, len(tokenizer)))
                tables = {"gpt": ["wte"], "llama": ["embed_tokens"] if tied else ["embed_tokens", "lm_head"]}[model]
                torch.manual_seed(3)
                peer = get_peft_model(start, LoraConfig(task_type="CAUSAL_LM", r=2, lora_alpha=8, target_modules={"gpt": ["c_attn"], "llama": ["q_proj", "v_proj"]}[model],
                                                        fan_in_fan_out=model == "gpt", trainable_token_indices={table: rows for table in tables}))
                trained = [parameter for parameter in peer.parameters() if parameter.requires_grad]
                with torch.no_grad():
                    for parameter in trained:
                        parameter.add_(torch.randn_like(parameter) * 0.05)
                peer.eval().save_pretrained(self.folder / "adapter")
                ids = tokenizer(text, add_special_tokens=False)["input_ids"]
                windows = torch.tensor([ids[first:first + 33] for first in range(0, len(ids) - 32, 32)])
                same = ["lora.init_from=adapter", ADD, "data_config.block_size=32", "data_config.stride=32", "data_config.train_split=1", f"trainer_config.batch_size={len(windows)}",
                        "trainer_config.max_steps=10", "trainer_config.max_epochs=100", "trainer_config.log_every_steps=1", "trainer_config.grad_norm_clip=0",
                        "optimizer_config={learning_rate: 0.01, weight_decay: 0, betas: [0.9, 0.99], lr_schedule: constant}"]
                same += [f"gpt_config.{part}_pdrop=0" for part in ("embd", "resid", "attn") if model == "gpt"]
                for name in ("tuned.pt", "metrics.jsonl"):
                    (self.folder / name).unlink(missing_ok=True)
                self.train(*same, model=model)
                self.assertIn(f"on {2 if model == 'gpt' else 4} layers", (self.folder / "main.log").read_text())
                records = [json.loads(line) for line in (self.folder / "metrics.jsonl").read_text().splitlines()]
                ours = [record["loss"] for record in records if record["split"] == "train"]
                optimizer, theirs = torch.optim.AdamW(trained, lr=0.01, betas=(0.9, 0.99), weight_decay=0), []
                for _ in range(10):
                    loss = torch.nn.functional.cross_entropy(peer(windows[:, :-1]).logits.flatten(0, 1), windows[:, 1:].flatten())
                    theirs.append(loss.item())
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                self.assertEqual(len(ours), len(theirs))
                self.assertLess(max(abs(one - other) for one, other in zip(ours, theirs)), 1e-5, (ours, theirs))
                self.assertLess(theirs[-1], theirs[0] - 0.1)

                expected = self.logits(peer, windows[0, :-1].tolist())
                merged = AutoModelForCausalLM.from_pretrained(self.export("--merge", "--dtype", "fp32")[0]).eval()
                self.assertEqual((merged.config.tie_word_embeddings, merged.config.vocab_size), (tied, len(tokenizer)))
                self.assertTrue(torch.allclose(self.logits(merged, windows[0, :-1].tolist()), expected, atol=1e-3))
                greedy = ["--prompt", "A <tool>", "--max_new_tokens", "8", "--greedy"]
                self.assertEqual(self.trainer("generate", "--snapshot", "out", *greedy).stdout, self.trainer("generate", "--snapshot", "tuned.pt", *greedy).stdout)
                out, _ = self.export("--format", "peft")
                grown = AutoModelForCausalLM.from_pretrained(self.base, dtype=torch.float32)
                grown.resize_token_embeddings(len(AutoTokenizer.from_pretrained(out)))
                read = self.logits(PeftModel.from_pretrained(grown, out).eval(), windows[0, :-1].tolist())
                self.assertTrue(torch.allclose(read, self.logits(merged, windows[0, :-1].tolist()), atol=1e-5))
                self.assertIn("trainable_token_indices is", self.refused("--config", "config.yaml", f"model={model}", f"{model}_config.init_from=base", *same, ADD.replace("<tool>", "<other>', '<tool>"),
                                                                         "trainer_config.snapshot_path=other.pt"))
                self.check_resume(ADD, "lora.rank=2", "optimizer_config.learning_rate=0.01", model=model, export=("--merge",))

    def test_rows_of_added_tokens_are_trained_next_to_adapters_as_by_peft(self):
        self.check_rows_next_to_adapters([LLAMA])

    def test_rows_of_added_tokens_are_trained_next_to_adapters_of_other_models(self):
        self.check_rows_next_to_adapters([TIED_LLAMA, GPT])

    def test_added_tokens_whose_rows_are_padding_begin_as_the_mean(self):
        tokens = made.llama3().get_vocab_size()
        llama(self.base, vocab_size=(tokens // 64 + 1) * 64)
        self.train(ADD, "optimizer_config.weight_decay=0", "optimizer_config.learning_rate=1e-30")
        theirs, ours = load_file(self.base / "model.safetensors"), load_file(self.export("--dtype", "fp32")[0] / "model.safetensors")
        for name in ("model.embed_tokens.weight", "lm_head.weight"):
            table = theirs[name][:tokens].float()
            mean = table.double().mean(0, keepdim=True).float().expand(len(ADDED), -1)
            self.assertTrue(torch.allclose(ours[name], torch.cat([table, mean]), rtol=0, atol=1e-8), name)

    def test_a_tokenizer_with_a_further_token_of_incomplete_characters_is_exported(self):
        llama(self.base)
        shutil.copytree(self.base, self.folder / "grown")
        path = self.folder / "grown/tokenizer.json"
        tokens, size = json.loads(path.read_text()), len(AutoTokenizer.from_pretrained(self.base))
        tokens["model"]["vocab"]["ÃÃ"] = size
        write(path, tokens)
        self.train("data_config.tokenizer=grown")
        exported = json.loads((self.export()[0] / "tokenizer.json").read_text())
        self.assertEqual(exported["model"]["vocab"]["ÃÃ"], size)

    def test_tokens_that_cannot_be_added_are_refused(self):
        llama(self.base)
        command = ["--config", "config.yaml", "init_from=base"]
        known = next(token for token in AutoTokenizer.from_pretrained(self.base).get_vocab() if token.isalpha() and len(token) > 1)
        for token in (known, "<|begin_of_text|>"):
            self.assertIn(f"data_config.add_tokens: '{token}' is a token already", self.refused(*command, f"data_config.add_tokens=['{token}']"))
        self.assertIn("data_config.add_tokens: 'a b' is a token already", self.refused(*command, "data_config.add_tokens=['a b', 'a b']"))
        self.assertIn("data_config.add_tokens: needs a tokenizer to add them to", self.refused(*command, ADD, "data_config.tokenizer=byte"))
        self.trainer("tokenize", "--tokenizer", "base", "--output", "tokens", "--input", "text.txt")
        self.assertIn("holds tokens already", self.refused(*command, ADD, "data_config.path=tokens"))
        self.assertIn("lm_head has no adapter next to rows of data_config.add_tokens", self.refused(*command, ADD, "lora.rank=2", "lora.targets=[lm_head]"))
        self.assertIn("prompt_tuning trains no rows of new tokens", self.refused(*command, ADD, "prompt_tuning.tokens=2"))
        self.train(ADD)
        for tokens in ("'<other>'", "'<tool>', 'naïve', '<other>'"):
            self.assertIn("data_config.add_tokens is", self.refused("--config", "config.yaml", "model=llama", "llama_config.init_from=base", f"data_config.add_tokens=[{tokens}]"))

    def test_positions_that_were_cut_limit_the_tokenizer(self):
        tokenizer_of(made.smollm2(), {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"}, 128, templates.LLAMA2).save_pretrained(self.base)
        GPT2LMHeadModel(GPT2Config(vocab_size=len(AutoTokenizer.from_pretrained(self.base)), n_positions=128, n_embd=32, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=2,
                                   embd_pdrop=0.25)).save_pretrained(self.base)
        before = facts(self.base)
        self.train(model="gpt")
        leftover = self.folder / "elsewhere/model.safetensors.tmp.4194305"  # above the highest process id
        leftover.parent.mkdir()
        leftover.write_text("cut")
        done = self.trainer("export", "--snapshot", "tuned.pt", "--output", "elsewhere")
        self.assertEqual(done.stderr, self.fewer("n_positions", 128))
        self.assertFalse(leftover.exists())
        after = facts(self.export()[0])
        self.assertEqual((after["length"], after["config"]["n_positions"]), (64, 64))
        self.assertEqual(after, {**before, "length": 64, "config": {**before["config"], "n_positions": 64, "n_ctx": 64}})

    def test_a_masked_model_keeps_its_settings(self):
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz.,", *(f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz")]
        (self.base / "vocab.txt").write_text("\n".join(words) + "\n")
        write(self.base / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": 512, "model_input_names": ["input_ids"]})
        BertForMaskedLM(BertConfig(vocab_size=len(words), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=48, max_position_embeddings=512,
                                   pad_token_id=0, initializer_range=0.5)).half().save_pretrained(self.base)
        self.trainer("--config", "config.yaml", "task=masked_lm", "bert_config.init_from=base")
        out, error = self.export()
        config = AutoConfig.from_pretrained(out)
        self.assertEqual((config.initializer_range, config.max_position_embeddings, config.dtype, error), (0.5, 64, torch.float16, self.fewer("max_position_embeddings", 512)))
        tokenizer = AutoTokenizer.from_pretrained(out)
        self.assertEqual((tokenizer.model_max_length, tokenizer.model_input_names), (64, ["input_ids"]))
        self.assertEqual(tokenizer("The dog")["input_ids"], AutoTokenizer.from_pretrained(self.base)("The dog")["input_ids"])

    def test_the_type_of_the_weights(self):
        llama(self.base)
        self.train()
        for name, dtype, form in (("bf16", torch.bfloat16, "huggingface"), ("fp16", torch.float16, "safetensors"), ("fp32", torch.float32, "torch")):
            with self.subTest(dtype=name, format=form):
                out = self.export("--dtype", name, "--format", form)[0]
                weights = torch.load(out / "model.pt", weights_only=True) if form == "torch" else load_file(out / "model.safetensors")
                self.assertEqual({tensor.dtype for tensor in weights.values()}, {dtype})
            out = out if form == "huggingface" else self.export("--dtype", name)[0]
            self.assertEqual((AutoConfig.from_pretrained(out).dtype, AutoModelForCausalLM.from_pretrained(out).dtype), (dtype, dtype))
        self.train("llama_config.init_from=null", "llama_config.n_layer=1", "llama_config.n_head=2", "llama_config.n_embd=32", "data_config.tokenizer=byte",
                   "trainer_config.snapshot_path=scratch.pt")
        self.assertEqual(AutoModelForCausalLM.from_pretrained(self.export(snapshot="scratch.pt")[0]).dtype, torch.float32)
        weights = {name: tensor.float() for name, tensor in load_file(self.base / "model.safetensors").items()}
        weights["model.norm.weight"][3] = 70000.0
        save_file(weights, self.base / "model.safetensors", metadata={"format": "pt"})
        error = self.trainer("export", "--snapshot", "base", "--output", "out", "--dtype", "fp16", code=2).stderr
        self.assertRegex(error, r"^error: export: model.norm.weight has numbers beyond the range of Half; use --dtype bf16 or fp32\n$")

    def continuation(self):
        """Tokens that trainer draws greedily, and whether they end by themselves."""
        line = json.loads(self.trainer("generate", "--snapshot", "base", "--prompt", "The dog", "--greedy", "--json", "--max_new_tokens", "12", "--device", "cpu").stdout)
        return line["tokens"], line["finish_reason"]

    def test_generation_ends_at_the_folders_tokens(self):
        llama(self.base, template=None)
        model, tokenizer = AutoModelForCausalLM.from_pretrained(self.base, dtype=torch.float32).eval(), AutoTokenizer.from_pretrained(self.base)
        ids = tokenizer("The dog", return_tensors="pt")
        prompt = ids["input_ids"].shape[1]
        drawn = model.generate(**ids, do_sample=False, max_new_tokens=12, eos_token_id=None, pad_token_id=0)[0, prompt:].tolist()
        last = next(i for i in range(3, 12) if drawn[i] not in drawn[:i])  # the first time that this token is drawn
        spelled = tokenizer.convert_ids_to_tokens(drawn[last])
        self.assertEqual(self.continuation(), (12, "length"))
        for ends in (drawn[last], [len(tokenizer) - 2, drawn[last]]):
            generation = json.loads((self.base / "generation_config.json").read_text())
            write(self.base / "generation_config.json", {**generation, "eos_token_id": ends})
            theirs = AutoModelForCausalLM.from_pretrained(self.base, dtype=torch.float32).generate(**ids, do_sample=False, max_new_tokens=12)[0, prompt:]
            self.assertEqual((len(theirs), self.continuation()), (last + 1, (last + 1, "stop")))
        write(self.base / "generation_config.json", {**generation, "eos_token_id": "no"})
        error = self.trainer("generate", "--snapshot", "base", "--prompt", "a", code=2).stderr
        self.assertIn("generation_config.json: eos_token_id is", error)
        write(self.base / "generation_config.json", generation)
        file = json.loads((self.base / "tokenizer.json").read_text())
        file["added_tokens"].append({**file["added_tokens"][0], "id": drawn[last], "content": spelled})
        write(self.base / "tokenizer.json", {**file, "added_tokens": sorted(file["added_tokens"], key=lambda token: token["id"])})
        config = json.loads((self.base / "tokenizer_config.json").read_text())
        special = json.loads((self.base / "special_tokens_map.json").read_text())
        for named in (spelled, {"content": spelled, "special": True}):
            write(self.base / "tokenizer_config.json", {**config, "eos_token": named})
            write(self.base / "special_tokens_map.json", {**special, "eos_token": named})
            self.assertEqual(self.continuation(), (last + 1, "stop"))


class Folders(Place):
    def save(self, weights):
        save_file(weights, self.base / "model.safetensors", metadata={"format": "pt"})

    def test_a_tied_head_that_the_file_has_as_well_or_alone(self):
        llama(self.base, tie_word_embeddings=True)
        table, head = "model.embed_tokens.weight", "lm_head.weight"
        weights = load_file(self.base / "model.safetensors")
        export = ["export", "--snapshot", "base", "--output", "out"]
        self.save({**weights, head: weights[table].clone()})
        self.trainer(*export)
        other = weights[table] + 1
        self.save({**weights, head: other})
        self.assertFalse(torch.equal(AutoModelForCausalLM.from_pretrained(self.base).lm_head.weight, weights[table]))  # transformers keeps them apart
        still = ["--config", "config.yaml", "model=llama", "llama_config.init_from=base", "trainer_config.max_steps=1", "optimizer_config.learning_rate=1e-30",
                 "trainer_config.snapshot_path=untied.pt"]
        for words in (export, still, ["export", "--snapshot", "untied.pt", "--output", "out"]):
            said = self.trainer(*words).stderr
            self.assertEqual(said.count("base/model.safetensors: lm_head.weight differs from model.embed_tokens.weight: both are used"), int(words[2] != "untied.pt"))
            if words is still:
                continue
            exported = AutoModelForCausalLM.from_pretrained(self.folder / "out", dtype=torch.float32)
            self.assertFalse(exported.config.tie_word_embeddings)
            self.assertTrue(torch.equal(exported.lm_head.weight, other.float()))
            self.assertTrue(torch.equal(exported.model.embed_tokens.weight, weights[table].float()))
            shutil.rmtree(self.folder / "out")
        self.save({head: other, **{name: tensor for name, tensor in weights.items() if name != table}})
        self.trainer(*export)
        for folder in ("base", "out"):
            self.assertTrue(torch.equal(AutoModelForCausalLM.from_pretrained(self.folder / folder).model.embed_tokens.weight, other), folder)

    def test_settings_that_cannot_be_read_are_refused(self):
        llama(self.base)
        GenerationConfig(eos_token_id=1).save_pretrained(self.base)
        for name in ("generation_config.json", "special_tokens_map.json", "tokenizer_config.json"):
            path = self.base / name
            text = path.read_text()
            path.unlink()
            for said in ("malformed JSON", "not a JSON object", "cannot read"):
                if said == "cannot read":
                    path.symlink_to(name)  # to itself
                else:
                    path.write_text("{" if said == "malformed JSON" else "[]")
                for words in (["generate", "--snapshot", "base", "--prompt", "a"], ["export", "--snapshot", "base", "--output", "out"],
                              ["--config", "config.yaml", "model=llama", "llama_config.init_from=base", "trainer_config.max_steps=1"]):
                    self.assertRegex(self.refused(*words), rf"{said}.*{name}|{name}.*{said}")
                path.unlink()
            path.write_text(text)

    def test_the_end_of_text_of_a_folder_is_that_of_data_generation_and_export(self):
        llama(self.base, template=None, eos="<|eot_id|>")
        end = AutoTokenizer.from_pretrained(self.base).eos_token_id
        (self.folder / "rows.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in ("The dog sleeps.", "The fox.") * 40))
        self.trainer("tokenize", "--tokenizer", "base", "--output", "tokens", "--input", "rows.jsonl")
        shard = (self.folder / "tokens/tokens_000000.bin").read_bytes()
        self.assertEqual(memoryview(shard[-2:]).cast("H")[0], end)
        for path, *overrides in (["tokens"], ["rows.jsonl", "data_config.tokenizer=base"]):
            self.trainer("--config", "config.yaml", "gpt_config.model_type=gpt-nano", f"data_config.path={path}", f"trainer_config.snapshot_path={path}.pt", *overrides)
            self.trainer("export", "--snapshot", f"{path}.pt", "--output", f"out_{path}")
            out = self.folder / f"out_{path}"
            self.assertEqual(AutoTokenizer.from_pretrained(out).eos_token_id, end)
            self.assertEqual((GenerationConfig.from_pretrained(out).eos_token_id, AutoConfig.from_pretrained(out).eos_token_id), (end, end))
            self.assertNotIn("end_of_text", (out / "tokenizer.json").read_text().replace("<|end_of_text|>", ""))

    def test_sizes_that_the_files_do_not_have_cost_no_memory(self):
        huge = 1_000_000  # two widths of it would be 4 TB of float32
        llama(self.base)
        self.train_once = ["--config", "config.yaml", "trainer_config.max_steps=1"]
        self.edit("config.json", hidden_size=huge, intermediate_size=huge)
        for words in (["generate", "--snapshot", "base", "--prompt", "a"], [*self.train_once, "model=llama", "llama_config.init_from=base"],
                      [*self.train_once, "model=llama", "llama_config.init_from=base", "lora.rank=2"]):
            self.assertRegex(self.refused(*words), r"base/model\.safetensors: the weights do not fit: model\.embed_tokens\.weight is \[\d+, 32\] there, \[\d+, 1000000\] here")
        GPT2LMHeadModel(GPT2Config(vocab_size=3256, n_positions=128, n_embd=32, n_layer=1, n_head=2)).save_pretrained(self.base)
        self.edit("config.json", n_embd=huge)
        self.assertRegex(self.refused(*self.train_once, "model=gpt", "gpt_config.init_from=base"), r"base/model\.safetensors: .*wpe\.weight is \[128, 32\] there, \[64, 1000000\] here")
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz.,"]
        (self.base / "tokenizer.json").unlink()
        (self.base / "vocab.txt").write_text("\n".join(words) + "\n")
        BertForMaskedLM(BertConfig(vocab_size=len(words), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=48)).save_pretrained(self.base)
        self.edit("config.json", hidden_size=huge, intermediate_size=huge)
        (self.folder / "table.csv").write_text("text,label\n" + "the dog.,yes\nthe fox.,no\n" * 20)
        classify = ["task=text_classification", "data_config.path=table.csv", "data_config.block_size=16"]
        for words in (["predict", "--snapshot", "base", "--text", "a [MASK]"], [*self.train_once, "task=masked_lm", "bert_config.init_from=base"],
                      [*self.train_once, *classify, "bert_config.init_from=base"]):
            self.assertRegex(self.refused(*words), r"base/model\.safetensors: the weights do not fit: bert.*weight is \[\d+, 32\] there, \[\d+, 1000000\] here")

    def test_a_name_on_the_hub_is_answered_with_the_command_to_fetch_it(self):
        for words, said in ((["--config", "config.yaml", "model=llama", "llama_config.init_from=meta-llama/Llama-3.2-1B"],
                             "llama_config.init_from=meta-llama/Llama-3.2-1B: "),
                            (["generate", "--snapshot", "meta-llama/Llama-3.2-1B", "--prompt", "a"], "error: ")):
            self.assertIn(said + "meta-llama/Llama-3.2-1B: no such folder; if it is a model on the Hugging Face Hub, fetch it with hf download meta-llama/Llama-3.2-1B --local-dir "
                          "FOLDER", self.refused(*words))
        for key in ("init_from", "gpt_config.init_from", "data_config.tokenizer", "prompt_tuning.init_from"):
            with self.subTest(key):
                self.assertIn("gpt2: no such folder; if it is a model on the Hugging Face Hub, fetch it with hf download gpt2 --local-dir FOLDER",
                              self.refused("--config", "config.yaml", f"{key}=gpt2"))
        self.assertNotIn("Hub", self.refused("generate", "--snapshot", "base/snapshot", "--prompt", "a"))

    def test_a_share_of_rotary_dimensions_is_refused_wherever_it_is_set(self):
        llama(self.base)
        config = json.loads((self.base / "config.json").read_text())
        for values in ({"partial_rotary_factor": 0.5}, {"rope_parameters": {**config["rope_parameters"], "partial_rotary_factor": 0.5}}):
            write(self.base / "config.json", {**config, **values})
            self.assertIn("partial_rotary_factor is not 1", self.refused("generate", "--snapshot", "base", "--prompt", "a"))


if __name__ == "__main__":
    unittest.main()
