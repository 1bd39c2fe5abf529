// Snapshots, models and adapters that do not fit: one line each.
#include <filesystem>
#include <fstream>

#include "tests/support/catch.h"

#include "tests/e2e/masked_text.h"
#include "tests/e2e/pictures.h"
#include "tests/e2e/reviews.h"
#include "tests/trainer/app/in_process.h"
#include "trainer/tensorfile/safetensors.h"

namespace ddp::test {
namespace {

using Catch::Contains;

/// Begins with the weights of snapshot.pt.
Words tuning(const Words& more) {
  return joined({"gpt_config.init_from=snapshot.pt", "trainer_config.snapshot_path=tuned.pt"},
                more);
}

/// A model in base.pt, and the configuration of its adapters.
struct AdapterPlace : Workspace {
  explicit AdapterPlace(const std::string& model) : section(model + "_config") {
    write(
        "config.yaml",
        tiny_text_config("model: " + model + "\n" + section + ": {init_from: base.pt}\n", "0.01") +
            "lora: {rank: 4, dropout: 0.1}\n");
    Words base = {"~lora", "trainer_config.snapshot_path=base.pt", "trainer_config.max_steps=2"};
    for (const char* size : {".init_from=null", ".n_layer=2", ".n_head=2", ".n_embd=32"})
      base.push_back(section + size);
    succeed_in_process(alone(*this, base));
  }

  std::string section;
};

}  // namespace

TEST_CASE("a snapshot that cannot be begun with is refused in one line") {
  const Workspace place;
  succeed_in_process(alone(place, {"trainer_config.max_steps=2"}));
  place.write("other.txt", std::string(2000, 'a') + "bcd");
  check_refused(in_process(alone(
                    place, tuning({"data_config.path=other.txt", "data_config.tokenizer=byte"}))),
                {"another vocabulary than that of gpt_config.init_from="});
  check_refused(in_process(alone(place, tuning({"gpt_config.n_layer=3", "gpt_config.n_head=2",
                                                "gpt_config.n_embd=32"}))),
                {"n_layer is 2 there, 3 here"});
  check_refused(in_process(alone(place, tuning({"gpt_config.init_from=text.txt"}))),
                {"is neither a snapshot of this trainer nor a folder"});
}

TEST_CASE("a Llama's snapshot that does not fit is refused in one line") {
  const Workspace place;
  place.write("config.yaml",
              tiny_text_config(
                  "model: llama\nllama_config: {n_layer: 2, n_head: 4, n_kv_head: 2, n_embd: 32}\n",
                  "0.01"));
  succeed_in_process(alone(place, {"trainer_config.max_steps=5"}));
  const auto refused = [&](const Words& overrides) { return refusal_of(alone(place, overrides)); };
  CHECK_THAT(refused({"llama_config.n_kv_head=1"}), Contains("llama_config.n_kv_head"));
  CHECK_THAT(refused({"llama_config.qk_norm=true"}), Contains("llama_config.qk_norm"));
  const Workspace gpt;
  succeed_in_process(alone(gpt, {"trainer_config.max_steps=1"}));
  CHECK_THAT(refused({"llama_config.init_from=" + gpt.snapshot()}),
             Contains("is a snapshot of model gpt; give one of llama"));
  succeed_in_process(trainer(place, {"export", "--snapshot", "snapshot.pt", "--output", "folder"}));
  CHECK_THAT(refused({"~llama_config", "+llama_config.init_from=folder",
                      "data_config.tokenizer=byte", "trainer_config.snapshot_path=other.pt"}),
             Contains("byte is another vocabulary than that of llama_config.init_from=") &&
                 Contains("leave it out"));
  CHECK_THAT(
      refusal_of(trainer(place, {"eval", "--snapshot", "folder"})),
      Contains("--snapshot: folder: is the folder of a model, which has no evaluation data; name"));
  std::filesystem::create_directory(place / "none");
  CHECK_THAT(refusal_of(trainer(place, {"eval", "--snapshot", "none"})),
             Contains("none/config.json: No such file or directory"));
}

TEST_CASE("adapters whose model is missing or another one are refused in one line") {
  for (const std::string model : {"gpt", "llama"}) {
    INFO(model);
    const AdapterPlace place(model);
    succeed_in_process(alone(place, {"trainer_config.max_steps=5"}));
    const Words generate = {"generate", "--snapshot", "snapshot.pt", "--prompt", "the "};
    std::filesystem::rename(place / "base.pt", place / "away.pt");
    CHECK_THAT(refusal_of(trainer(place, generate)),
               Contains("no such folder or snapshot") &&
                   Contains("; put it back there, or give its place with --base (generate, eval, "
                            "export) or as " +
                            place.section + ".init_from (training)"));
    CHECK_THAT(refusal_of(alone(place)), Contains("base.pt"));
    succeed_in_process(trainer(place, {"export", "--snapshot", "away.pt", "--output", "other"}));
    // The same weights from other files are the same model; a trained one is another.
    std::filesystem::rename(place / "other", place / "base.pt");
    succeed_in_process(trainer(place, generate));
    std::filesystem::remove_all(place / "base.pt");
    succeed_in_process(
        alone(place, {"~lora", "trainer_config.snapshot_path=base.pt", "trainer_config.max_steps=6",
                      place.section + ".init_from=away.pt"}));
    CHECK_THAT(refusal_of(trainer(place, generate)),
               Contains("is not the model that the adapters"));
    CHECK_THAT(refusal_of(trainer(place, {"eval", "--snapshot", "snapshot.pt"})),
               Contains("is not the model that the adapters"));
    CHECK_THAT(refusal_of(alone(place)), Contains("is not the model that the adapters"));
  }
}

TEST_CASE("what adapters cannot be is refused in one line") {
  const AdapterPlace place("llama");
  CHECK_THAT(
      refusal_of(alone(place, {"lora.targets=[c_attn]"})),
      Contains(
          "lora.targets=[c_attn]: 'c_attn' matches no layer that takes adapters; those of this "
          "model end in embed_tokens, q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, "
          "down_proj, lm_head, and whole names look like model.layers."));
  CHECK_THAT(refusal_of(alone(place, {"lora.targets=['lm_h*']"})), Contains("'lm_h*' matches no"));
  CHECK_THAT(refusal_of(alone(place, {"lora.targets=[]"})),
             Contains("lora.targets=[]: selects no layer; remove it for the default, [q_proj, "
                      "v_proj], or use all-linear"));
  CHECK_THAT(refusal_of(alone(place, {"lora.rank=0"})),
             Contains("has no effect without lora.rank"));
  CHECK_THAT(refusal_of(alone(place, {"llama_config.init_from=null", "llama_config.n_layer=2",
                                      "llama_config.n_head=2", "llama_config.n_embd=32"})),
             Contains("set llama_config.init_from"));
  CHECK_THAT(refusal_of(alone(place, {"trainer_config.freeze=[model.embed*]"})),
             Contains("no parameter matches 'model.embed*'"));
  succeed_in_process(alone(place, {"trainer_config.max_steps=2"}));
  CHECK_THAT(refusal_of(alone(place, {"lora.rank=8"})),
             Contains("lora.rank is 4 there, 8 in this"));
  CHECK_THAT(refusal_of(alone(place, {"lora.alpha=32"})), Contains("lora.alpha is "));
  const auto exported = [&place](const Words& more) {
    return refusal_of(trainer(place, joined({"export", "--output", "out"}, more)));
  };
  CHECK_THAT(exported({"--snapshot", "snapshot.pt"}), Contains("add --merge for the whole model"));
  CHECK_THAT(exported({"--snapshot", "snapshot.pt", "--merge", "--format", "peft"}),
             Contains("keep one"));
  succeed_in_process(trainer(
      place, {"export", "--snapshot", "snapshot.pt", "--output", "adapters", "--format", "peft"}));
  CHECK_THAT(exported({"--snapshot", "adapters"}),
             Contains("adapters: holds adapters for peft (adapter_config.json), not a whole model; "
                      "give the snapshot that they were exported from"));
  CHECK_THAT(refusal_of(alone(place, {"~lora", "+lora.init_from=adapters", "+lora.targets=[]",
                                      "trainer_config.snapshot_path=new.pt"})),
             Contains("lora.targets=[]: selects no layer; remove it for those of lora.init_from, "
                      "or use all-linear"));
  std::ifstream file(place / "adapters/adapter_config.json");
  std::string settings{std::istreambuf_iterator<char>(file), {}};
  const std::string none = "\"modules_to_save\": null";
  settings.replace(settings.find(none), none.size(), "\"modules_to_save\": [\"lm_head\"]");
  place.write("adapters/adapter_config.json", settings);
  CHECK_THAT(refusal_of(alone(place, {"~lora", "+lora.init_from=adapters",
                                      "trainer_config.snapshot_path=new.pt"})),
             Contains("modules_to_save is [lm_head]: layers trained in full") &&
                 Contains("start from that folder"));
  CHECK_THAT(refusal_of(alone(place, {"~lora", "+lora.init_from=owner/adapter"})),
             Contains("lora.init_from") && Contains("hf download owner/adapter"));
  CHECK_THAT(exported({"--snapshot", "base.pt", "--merge"}),
             Contains("is no snapshot of adapters"));
  CHECK_THAT(refusal_of(alone(place, {"~lora", "llama_config.init_from=snapshot.pt",
                                      "trainer_config.snapshot_path=new.pt"})),
             Contains("is a snapshot of adapters"));
}

TEST_CASE("an export in 4 bits of rows that blocks do not divide is refused in one line") {
  const Workspace place;
  succeed_in_process(alone(place, {"trainer_config.max_steps=1"}));
  CHECK_THAT(refusal_of(trainer(place, {"export", "--snapshot", "snapshot.pt", "--output", "out",
                                        "--quantize", "nf4"})),
             Contains("--quantize nf4: divides rows into blocks of 64, and transformer.h.0.") &&
                 Contains("leave it out"));
}

TEST_CASE("what virtual tokens cannot be is refused in one line") {
  AdapterPlace place("llama");
  const Words prompt = {"~lora", "+prompt_tuning.tokens=4"};
  succeed_in_process(alone(place, joined(prompt, {"trainer_config.max_steps=2"})));
  CHECK_THAT(refusal_of(alone(place, {"~lora", "+prompt_tuning.tokens=8"})),
             Contains("prompt_tuning.tokens is 4 there, 8 in this"));
  const auto exported = [&place](const Words& more) {
    return refusal_of(
        trainer(place, joined({"export", "--snapshot", "snapshot.pt", "--output", "out"}, more)));
  };
  CHECK_THAT(exported({}), Contains("holds virtual tokens") && Contains("use --format peft"));
  CHECK_THAT(exported({"--merge"}), Contains("--merge") && Contains("use --format peft"));
  CHECK_THAT(refusal_of(alone(place, {"~lora", "llama_config.init_from=snapshot.pt",
                                      "trainer_config.snapshot_path=new.pt"})),
             Contains("is a snapshot of virtual tokens"));
}

TEST_CASE("weights that cannot be quantized are refused in one line") {
  const AdapterPlace place("llama");
  CHECK_THAT(refusal_of(alone(place, {"~lora", "quantize.base=nf4"})),
             Contains("quantize.base") && Contains("set lora.rank"));
  CHECK_THAT(refusal_of(alone(place, {"quantize.base=nf4"})),
             Contains("nf4 divides rows into blocks of 64, and model.layers.0.self_attn.q_proj."
                      "weight has rows of 32; use int8"));
  CHECK_THAT(refusal_of(alone(place, {"quantize.base=fp4"})), Contains("none | int8 | nf4"));
  succeed_in_process(alone(place, {"quantize.base=int8", "trainer_config.max_steps=2"}));
  CHECK_THAT(refusal_of(alone(place)), Contains("quantize.base is \"int8\" there, \"none\" in"));
  succeed_in_process(trainer(place, {"export", "--snapshot", "base.pt", "--output", "folder"}));
  std::ifstream file(place / "folder/config.json");
  const std::string config{std::istreambuf_iterator<char>(file), {}};
  for (const std::string method : {"gptq", "awq"}) {
    place.write("folder/config.json", config.substr(0, config.rfind('}')) +
                                          R"(, "quantization_config": {"quant_method": ")" +
                                          method + "\"}}");
    CHECK_THAT(refusal_of(alone(place, {"llama_config.init_from=folder",
                                        "trainer_config.snapshot_path=new.pt"})),
               Contains("weights quantized by " + method + " are not read"));
  }
  place.write("folder/config.json", config);
  const int32_t codes = 0;
  train::publish_safetensors(place / "folder/model.safetensors", "", {},
                             {{"model.layers.0.self_attn.q_proj.qweight",
                               "I32",
                               {1, 1},
                               reinterpret_cast<const std::byte*>(&codes),
                               sizeof codes}});
  CHECK_THAT(
      refusal_of(
          alone(place, {"llama_config.init_from=folder", "trainer_config.snapshot_path=new.pt"})),
      Contains("model.safetensors: model.layers.0.self_attn.q_proj.qweight is a weight in codes of "
               "GPTQ or AWQ (qweight, qzeros, scales), which are not read; give the folder"));
}

TEST_CASE("a snapshot of images is no language model, and of other images is not resumed") {
  const ImageWorkspace place;
  succeed_in_process(alone(place, {"trainer_config.max_steps=2"}));
  check_refused(
      in_process(trainer(place, {"generate", "--snapshot", "snapshot.pt", "--prompt", "a"})),
      {"was trained with task image_classification"});
  check_refused(
      in_process(trainer(place, {"export", "--snapshot", "snapshot.pt", "--output", "x"})),
      {"was trained with task image_classification; trainer export is for causal_lm, masked_lm "
       "and text_classification"});
  check_refused(in_process(trainer(place, {"predict", "--snapshot", "snapshot.pt", "--text", "a"})),
                {"--input FILE"});
  check_refused(in_process(alone(place, {"image_config.width=32"})), {"image_config.width"});
  write_idx(place, "other", 30, 5);
  const auto elsewhere = in_process(alone(place, {"data_config.path=text.txt", "task=causal_lm",
                                                  "~image_config", "data_config.eval_path=null"}));
  check_refused(elsewhere, {"was trained with task image_classification, not causal_lm"});
}

TEST_CASE("a classifier's snapshot refuses labels and inputs that it does not know") {
  const ReviewWorkspace place;
  succeed_in_process(alone(place, {"trainer_config.max_steps=1"}));
  place.write("unknown.csv", "text,label\nthe film,good\nthe cast,awful\n");
  check_refused(
      in_process(trainer(place, {"eval", "--snapshot", "snapshot.pt", "--data", "unknown.csv"})),
      {"unknown.csv:3: the label awful is not one that the model knows: bad, good; "
       "correct the row"});
  check_refused(in_process(trainer(place, joined(kPredict, {"--text", ""}))), {"--text: is empty"});
  place.write("other.csv", "body\nx\n");
  check_refused(in_process(trainer(place, joined(kPredict, {"--input", "other.csv"}))),
                {"--input", "has no column text", "rename one of them"});
  check_refused(in_process(trainer(
                    place, joined(kPredict, {"--input", "other.csv", "--output", "./other.csv"}))),
                {"--output: ./other.csv is the input"});
  check_refused(in_process(trainer(place, joined(kPredict, {"--input", "none.csv"}))),
                {"--input: none.csv: no such file"});
  check_refused(
      in_process(trainer(place, {"generate", "--snapshot", "snapshot.pt", "--prompt", "a"})),
      {"was trained with task text_classification"});
}

TEST_CASE("what cannot be predicted is refused in one line") {
  const MaskedWorkspace place;
  succeed_in_process(alone(place, {"trainer_config.max_steps=1"}));
  const auto predict = [&](const std::string& text) {
    return in_process(trainer(place, {"predict", "--snapshot", "snapshot.pt", "--text", text}));
  };
  check_refused(predict(""), {"--text", "empty"});
  check_refused(predict("The brook ran."), {"--text", "no [MASK]"});
  check_refused(
      predict("[MASK] the brook ran and ran and ran and ran and ran and ran and ran and ran "
              "and ran and ran and ran and ran."),
      {"--text", "the model takes 24"});
}

TEST_CASE("a chat without a template, and options that do not belong to one, are refused") {
  const Workspace texts;
  succeed_in_process(alone(texts, {"trainer_config.max_steps=2"}));
  const auto refused = [&](const Words& options) {
    return refusal_of(trainer(texts, joined({"generate", "--snapshot", "snapshot.pt"}, options)));
  };
  CHECK_THAT(refused({"--chat"}), Contains("--chat: snapshot.pt has no chat template"));
  CHECK_THAT(refused({"--chat", "--num_samples", "2"}),
             Contains("--num_samples: conflicts with --chat"));
  CHECK_THAT(refused({"--prompt", "a", "--system", "b"}), Contains("--system: belongs to --chat"));
  CHECK_THAT(refused({"--chat", "--prompt", ""}), Contains("--prompt: is empty"));
}

TEST_CASE("inspect refuses what is not a snapshot") {
  const Workspace place;
  place.write("empty", "");
  check_refused(in_process(trainer(place, {"inspect", "text.txt"})), {"text.txt"}, 2);
  check_refused(in_process(trainer(place, {"inspect", "empty"})), {"empty"}, 1);
  check_refused(in_process(trainer(place, {"inspect", "tmp"})), {"tmp"}, 2);
  check_refused(in_process(trainer(place, {"inspect", "missing.pt"})), {"missing.pt"}, 2);
}

TEST_CASE("generate refuses a prompt that the vocabulary does not have") {
  const Workspace place;
  succeed_in_process(alone(place, {"trainer_config.max_steps=1"}));
  const auto refused = [&](const std::string& prompt, const Words& said) {
    const auto run =
        in_process(trainer(place, {"generate", "--snapshot", "snapshot.pt", "--prompt", prompt}));
    check_refused(run, said);
  };
  refused("the\u20acbrook", {"'\u20ac'", "vocabulary"});
  refused("", {"--prompt"});
  refused("the \xff", {"UTF-8"});
  std::filesystem::resize_file(place.write("large.txt", "the "), 300'000'000);
  for (const auto& [file, said] : {std::pair{"large.txt", "has 300 MB, more than the 268 MB"},
                                   {"/dev/zero", "/dev/zero: is a pipe or a device; give a"}}) {
    check_refused(in_process(trainer(
                      place, {"generate", "--snapshot", "snapshot.pt", "--prompt_file", file})),
                  {"--prompt_file: ", said});
  }
}

}  // namespace ddp::test
