"""The other side of interop_test.cc and sampling_test.cc: Python's transformers, tokenizers and torch.

  interop_peer.py make FOLDER ACTIVATION TIED     a GPT-2 with random weights, and expected.safetensors: what it computes
  interop_peer.py make_llama FOLDER KIND          a model of LLAMAS, likewise; those of SHARDED as shards of bfloat16
  interop_peer.py check FOLDER DUMP TEXT          reads an exported folder, compares with what trainer computed
  interop_peer.py torch FILE DUMP                 reads an exported state dict, compares with the weights
  interop_peer.py check_peft BASE ADAPTER DUMP    reads a folder with exported adapters on it by peft, compares likewise
  interop_peer.py check_lora BASE ADAPTER DUMP THEIRS
                                                  compares training of exported adapters and saves what it reached
  interop_peer.py check_prompt BASE ADAPTER DUMP THEIRS
                                                  the same for exported virtual tokens, compares training as well and saves what it reached
  interop_peer.py sampling FILE                   logits, contexts and what transformers' processors make of them

Exit code 0: equal within the tolerances; 1: not; 77: a peer is not installed; 78: peft is not.
"""

import json
import os
import sys

try:
    import torch
    import transformers
    from safetensors.torch import load_file, save_file
    from transformers import (AutoModelForCausalLM, AutoTokenizer, Gemma2Config, Gemma3TextConfig, GPT2Config, GPT2LMHeadModel, LlamaConfig, MistralConfig,
                              MixtralConfig, Phi3Config, Qwen2Config, Qwen3Config, Qwen3MoeConfig)
    from transformers.generation import logits_process
except ImportError:
    sys.exit(77)

transformers.logging.set_verbosity_error()
TOLERANCE = 1e-5
VOCABULARY, WIDTH, LENGTH = 65, 64, 32

LLAMA3 = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}
GEMMA = {"num_hidden_layers": 3, "num_key_value_heads": 2, "head_dim": 16, "query_pre_attn_scalar": 24, "sliding_window": 9,
         "pad_token_id": None}
BALANCED = {"router_aux_loss_coef": 0.25, "output_router_logits": True}
# Those of llama_kinds.h, in transformers' words.
LLAMAS = {
    "llama2": (LlamaConfig, {"num_key_value_heads": 4, "rms_norm_eps": 1e-5}),
    "llama3": (LlamaConfig, {"num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_parameters": LLAMA3}),
    "linear": (LlamaConfig, {"rms_norm_eps": 1e-5, "rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.5}}),
    "smollm2": (LlamaConfig, {"num_key_value_heads": 1, "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
                              "rope_parameters": {"rope_type": "default", "rope_theta": 1e5}}),
    "qwen2": (Qwen2Config, {"num_key_value_heads": 2, "tie_word_embeddings": True}),
    "qwen3": (Qwen3Config, {"num_key_value_heads": 2, "head_dim": 32}),
    "mistral": (MistralConfig, {"num_key_value_heads": 2, "sliding_window": 9}),
    "phi3": (Phi3Config, {"num_key_value_heads": 2, "sliding_window": 20, "pad_token_id": None,
                          "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.75}}),
    "gemma2": (Gemma2Config, {**GEMMA, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}),
    "gemma3_text": (Gemma3TextConfig, {**GEMMA, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
                                       "rope_parameters": {
        "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 4.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 500.0}}}),
    "yarn": (LlamaConfig, {"rms_norm_eps": 1e-5, "rope_parameters": {
        "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16}}),
    "mixtral": (MixtralConfig, {"num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2, **BALANCED}),
    "qwen3_moe": (Qwen3MoeConfig, {"num_key_value_heads": 2, "head_dim": 32, "moe_intermediate_size": 48, "num_experts": 8,
                                   "num_experts_per_tok": 3, **BALANCED}),
    "dynamic": (LlamaConfig, {"rms_norm_eps": 1e-5, "max_position_embeddings": 40, "rope_parameters": {
        "rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}}),
}
SHARDED = ("llama3", "qwen3")
FUSED = {"qkv_proj": (["q_proj", "k_proj", "v_proj"], [64, 32, 32]), "gate_up_proj": (["gate_proj", "up_proj"], 96)}  # of phi3
EXPERTS = {"mixtral": {"gate_up_proj": ["w1", "w3"], "down_proj": ["w2"]},
           "qwen3_moe": {"gate_up_proj": ["gate_proj", "up_proj"], "down_proj": ["down_proj"]}}

FILTERS = [
    {}, {"temperature": 0.7}, {"top_k": 5}, {"top_k": 1000}, {"top_p": 0.9}, {"top_p": 0.3}, {"top_p": 1e-6},
    {"min_p": 0.1}, {"min_p": 1.0}, {"repetition_penalty": 1.3}, {"repetition_penalty": 0.8},
    {"temperature": 1.5, "top_k": 20, "top_p": 0.8, "min_p": 0.05, "repetition_penalty": 1.2},
    {"temperature": 0.4, "top_p": 0.95, "repetition_penalty": 2.0},
]


def make(folder, activation, tied):
    torch.manual_seed(7)
    config = GPT2Config(vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=WIDTH, n_layer=2, n_head=4,
                        activation_function=activation, tie_word_embeddings=tied == "1", bos_token_id=None, eos_token_id=None)
    model = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
        inputs, targets = torch.randint(0, VOCABULARY, (2, 3, LENGTH))
        logits = model(inputs).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    model.save_pretrained(folder)
    save_file({"inputs": inputs, "targets": targets, "logits": logits, "loss": loss.reshape(1)},
              folder + "/expected.safetensors")
    return 0


def loss_of(model, inputs, targets):
    return model(inputs, labels=targets, shift_labels=targets).loss


def named_as_in_files(kind, name, gradient):
    if kind == "mixtral":
        name = name.replace(".mlp.", ".block_sparse_moe.")
    if ".experts." in name:
        start, fused = name.rsplit(".", 1)
        return {f"{start}.{i}.{part}.weight": rows.clone() for i, of_expert in enumerate(gradient)
                for part, rows in zip(EXPERTS[kind][fused], of_expert.chunk(len(EXPERTS[kind][fused])))}
    layer = name.split(".")[-2]
    parts, rows = FUSED.get(layer, ([layer], gradient.shape[0]))
    return {name.replace(layer, part): rows.clone() for part, rows in zip(parts, gradient.split(rows))}


def ten_losses(model, inputs, targets):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        losses.append(loss_of(model, inputs, targets))
        losses[-1].backward()
        optimizer.step()
    return torch.stack(losses).detach()


def make_llama(folder, kind):
    torch.manual_seed(7)
    form, values = LLAMAS[kind]
    model = AutoModelForCausalLM.from_config(form(
        **{"vocab_size": VOCABULARY, "max_position_embeddings": 64, "hidden_size": WIDTH, "intermediate_size": 96,
           "num_hidden_layers": 2, "num_attention_heads": 4, "bos_token_id": None, "eos_token_id": None, **values})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    if kind in SHARDED:
        model.to(torch.bfloat16).save_pretrained(folder, max_shard_size="40KB")
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()  # exact frequencies of RoPE
    else:
        model.save_pretrained(folder)
    if kind == "linear":  # rope_scaling of version 4 next to the rope_parameters of version 5
        with open(folder + "/config.json") as file:
            config = json.load(file)
        config |= {"rope_scaling": config["rope_parameters"], "rope_parameters": {"rope_type": "default", "rope_theta": 77.0}}
        with open(folder + "/config.json", "w") as file:
            json.dump(config, file)
        model = AutoModelForCausalLM.from_pretrained(folder).eval()
    assert os.path.exists(folder + "/model.safetensors.index.json") == (kind in SHARDED)
    inputs, targets = torch.randint(0, VOCABULARY, (2, 3, 64))
    logits = model(inputs).logits
    loss = loss_of(model, inputs, targets)
    loss.backward()
    prompt = torch.tensor([[1, 2, 3]])
    greedy = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, pad_token_id=0, max_new_tokens=50)
    gradients = {}
    for name, parameter in model.named_parameters():
        gradients |= {"grad." + each: rows for each, rows in named_as_in_files(kind, name, parameter.grad).items()}
    save_file({"inputs": inputs, "targets": targets, "logits": logits.detach(), "loss": loss.detach().reshape(1),
               "greedy": greedy[0, 3:].contiguous(), "losses": ten_losses(model, inputs, targets), **gradients},
              folder + "/expected.safetensors")
    return 0


def differs(name, ours, theirs, tolerance):
    largest = (ours - theirs).abs().max().item()
    print(f"{name}: largest difference {largest:.2e}", file=sys.stderr)
    return not largest <= tolerance


def check(folder, dump, text):
    ours = load_file(dump)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        logits = model(ours["inputs"]).logits
    bad = differs("logits", ours["logits"], logits, TOLERANCE)
    prompt = ours["prompt"].unsqueeze(0)
    greedy = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, pad_token_id=0,
                            max_new_tokens=len(ours["greedy"]))[0, prompt.shape[1]:]
    if not torch.equal(greedy, ours["greedy"]):
        print(f"greedy: {greedy.tolist()} there, {ours['greedy'].tolist()} here", file=sys.stderr)
        bad = True
    ids = tokenizer(text)["input_ids"]
    if ids != ours["tokens"].tolist() or tokenizer.decode(ids) != text:
        print(f"tokens: {ids} there, {ours['tokens'].tolist()} here, {tokenizer.decode(ids)!r}", file=sys.stderr)
        bad = True
    return int(bad)


def peft():
    sys.path.append(os.environ.get("DDP_PEER_PACKAGES", os.path.join(os.path.dirname(__file__), "../../../.cache/peers")))
    try:
        import peft
    except ImportError as error:
        print(error, file=sys.stderr)
        sys.stderr.flush()
        os._exit(78)
    return peft


def check_peft(base, adapter, dump):
    PeftModel = peft().PeftModel
    ours = load_file(dump)
    plain = AutoModelForCausalLM.from_pretrained(base).eval()
    with torch.no_grad():
        before = plain(ours["inputs"]).logits
        model = PeftModel.from_pretrained(plain, adapter).eval()
        bad = differs("logits with adapters", ours["logits"], model(ours["inputs"]).logits, TOLERANCE)
        bad |= (before - ours["logits"]).abs().max().item() < 0.01  # the adapters do something
        tied = plain.config.tie_word_embeddings and any(name in ("wte", "embed_tokens", "lm_head") for name in model.peft_config["default"].target_modules)
        if not tied:  # peft adds to the one table of both
            bad |= differs("merged logits", ours["logits"], model.merge_and_unload()(ours["inputs"]).logits, TOLERANCE)
    return int(bad)


def compare_training(model, trained, ours, batch, rate):
    config = model.get_base_model().config
    if hasattr(config, "output_router_logits"):  # without it transformers leaves the routers' loss out
        config.output_router_logits = True
    optimizer = torch.optim.AdamW(trained, lr=rate)
    losses, norms = [], []
    for _ in ours["losses"]:
        optimizer.zero_grad()
        losses.append(model(**batch).loss)
        losses[-1].backward()
        norms.append(torch.stack([parameter.grad.norm() for parameter in trained]).norm())
        optimizer.step()
    losses = torch.stack(losses).detach()
    bad = differs("gradient norm, relative", ours["norm"] / norms[0], torch.ones(1), TOLERANCE)
    bad |= differs("losses, relative", ours["losses"] / losses, torch.ones_like(losses), TOLERANCE)
    return bad | (not losses[-1] < losses[0] - 0.01)


def check_lora(base, adapter, dump, theirs):
    ours = load_file(dump)
    model = peft().PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter, is_trainable=True).eval()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    batch = {"input_ids": ours["inputs"], "labels": ours["targets"], "shift_labels": ours["targets"]}
    bad = compare_training(model, trained, ours, batch, 0.01)
    model.save_pretrained(theirs)
    with torch.no_grad():
        save_file({"logits": model(ours["inputs"]).logits}, theirs + "/expected.safetensors")
    return int(bad)


def check_prompt(base, adapter, dump, theirs):
    ours = load_file(dump)
    count, inputs = ours["prompt"].shape[0], ours["inputs"]
    with torch.no_grad():
        loaded = peft().PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter).eval()
        bad = differs("logits after a prompt", ours["logits"], loaded(inputs).logits[:, count:], TOLERANCE)
    config = peft().PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=count, prompt_tuning_init="TEXT",
                                       prompt_tuning_init_text="Answer shortly", tokenizer_name_or_path=base)
    model = peft().get_peft_model(AutoModelForCausalLM.from_pretrained(base), config).eval()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    bad |= len(trained) != 1 or not torch.equal(trained[0].detach(), ours["prompt"])
    shifted = torch.nn.functional.pad(ours["targets"], (count, 0), value=-100)
    bad |= compare_training(model, trained, ours, {"input_ids": inputs, "labels": ours["targets"], "shift_labels": shifted}, 0.05)
    model.save_pretrained(theirs)
    with torch.no_grad():
        save_file({"logits": model(inputs).logits[:, count:].contiguous()}, theirs + "/expected.safetensors")
    return int(bad)


def check_torch(file, dump):
    theirs, ours = torch.load(file, weights_only=True), load_file(dump)
    equal = theirs.keys() == ours.keys() and all(torch.equal(theirs[name], ours[name]) for name in ours)
    return int(not equal)


def processors(options):
    made = logits_process.LogitsProcessorList()
    for name, kind in (("repetition_penalty", "RepetitionPenaltyLogitsProcessor"), ("temperature", "TemperatureLogitsWarper"),
                       ("top_k", "TopKLogitsWarper"), ("top_p", "TopPLogitsWarper"), ("min_p", "MinPLogitsWarper")):
        if name in options:
            made.append(getattr(logits_process, kind)(options[name]))
    return made


def sampling(file):
    torch.manual_seed(3)
    tensors = {}
    for i, options in enumerate(FILTERS):
        logits, context = torch.randn(4, 200) * 3, torch.randint(0, 200, (4, 30))
        tensors[f"{i}.logits"], tensors[f"{i}.context"] = logits, context
        tensors[f"{i}.probabilities"] = processors(options)(context, logits).softmax(-1)
    save_file(tensors, file, metadata={str(i): json.dumps(options) for i, options in enumerate(FILTERS)})
    return 0


code = {"make": make, "make_llama": make_llama, "check": check, "torch": check_torch, "check_peft": check_peft, "check_lora": check_lora, "check_prompt": check_prompt, "sampling": sampling}[sys.argv[1]](*sys.argv[2:])
# With torch 2.15 the interpreter may abort while it ends; the result is out by then.
sys.stdout.flush()
os._exit(code)
