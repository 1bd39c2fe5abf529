// What is wrong with a configuration: each error's place, reason and fix.
#include <sstream>
#include "tests/support/catch.h"

#include "tests/trainer/config/loading.h"
#include "trainer/config/keys/key_table.h"
#include "trainer/config/keys/trainer_keys.h"

namespace ddp::train {
namespace {

using test::kExample;
using test::Loading;
using test::Overrides;

TEST_CASE("interpolations that cannot be resolved name the place and the key") {
  const Loading loading;
  const auto error = [&](const std::string& batch) {
    return loading.error("data_config: {path: data/input.txt}\ntrainer_config:\n  batch_size: " +
                         batch);
  };
  CHECK(error("${trainer_config.nothing}")
            .find("cfg.yaml:3:15: trainer_config.batch_size: interpolation key "
                  "'trainer_config.nothing' not found") == 0);
  CHECK(error("${trainer_config.batch_size}").find("interpolation cycle") != std::string::npos);
  CHECK(error("${oc.env:DDP_TEST_UNSET}").find("environment variable DDP_TEST_UNSET is not set") !=
        std::string::npos);
}

TEST_CASE("a config file that cannot be read is named with the reason") {
  const test::TestFolder folder;
  const auto error = [](const std::string& file) {
    return test::error_of<UserError>([&] { load_config(ConfigSource::of_file(file), {}); });
  };
  CHECK(error("none.yaml") ==
        "none.yaml: cannot read the config file: No such file or directory; give a YAML file with "
        "--config");
  CHECK(error(".") ==
        ".: cannot read the config file: Is a directory; give a YAML file with --config");
  test::write_file("a.yaml", "");
  std::filesystem::create_directory("b.yaml");  // as a file that may not be read
  CHECK(error("b.yaml") ==
        "b.yaml: cannot read the config file: Is a directory; make it readable, or give another "
        "file with --config");
}

TEST_CASE("unreadable YAML is reported with line and column") {
  const Loading loading;
  CHECK(loading.error("data_config:\n  path: [x\n").find("cfg.yaml:2:9: not valid YAML: ") == 0);
  CHECK(loading.error("- a list") ==
        "cfg.yaml: not a configuration: sections such as data_config: are expected at the top");
  CHECK(loading.error("just text").find("cfg.yaml:1:1: just text: unknown key") == 0);
}

TEST_CASE("a key with dots in a file is refused: it would have no effect") {
  const Loading loading;
  const std::string told =
      ": dotted keys are for the command line; in a file, indent the key below its section";
  CHECK(loading.error("data_config: {path: data/input.txt}\ntrainer_config.batch_size: 4") ==
        "cfg.yaml:2:1: trainer_config.batch_size" + told);
  CHECK(loading.error("hydra.run.dir: x") == "cfg.yaml:1:1: hydra.run.dir" + told);
  CHECK(loading.error("hydra: {run.dir: x}") == "cfg.yaml:1:9: hydra.run.dir" + told);
}

TEST_CASE("a value that is left out is reported at its key") {
  const Loading loading;
  CHECK(loading
            .error("data_config: {path: data/input.txt}\ntrainer_config:\n  batch_size:\n\n"
                   "  max_epochs: 3\n")
            .find("cfg.yaml:3:3: trainer_config.batch_size: ") == 0);
}

TEST_CASE("an unknown key is an error with its place and the nearest known key") {
  const Loading loading;
  CHECK(loading.error("data_config: {path: data/input.txt}\ntrainer_config:\n  bach_size: 3") ==
        "cfg.yaml:3:3: trainer_config.bach_size: unknown key; did you mean "
        "'trainer_config.batch_size'?");
  CHECK(loading.error("trainer_confg: {}").find("cfg.yaml:1:1: trainer_confg: unknown key") == 0);
  CHECK(loading.error("trainer_confg: {}").find("did you mean 'trainer_config'?") !=
        std::string::npos);
  CHECK(loading.error("batch_size: 3").find("did you mean 'trainer_config.batch_size'?") !=
        std::string::npos);
  // The exact name in another section rather than a similar one (block_size).
  CHECK(loading.error_with({"data_config.batch_size=3"})
            .ends_with("did you mean 'trainer_config.batch_size'?"));
  CHECK(loading.error("hydra: {rundir: x}").find("cfg.yaml:1:9: hydra.rundir: unknown key") == 0);
  CHECK(loading.error("gpt_config: {1: x}").find("gpt_config.1: unknown key") != std::string::npos);
  CHECK(loading.error_with({"trainer_config.bach_size=3"})
            .find("command line: trainer_config.bach_size=3: unknown key") == 0);
  CHECK(loading.error_with({"gpt_config={n_layr:3}"}).find("did you mean 'gpt_config.n_layer'?") !=
        std::string::npos);
  CHECK(loading.error_with({"trainer_config.seed.x=3"}).find("seed") != std::string::npos);
}

TEST_CASE("a key of another training program is answered with the key here") {
  const Loading loading;
  CHECK(loading.error_with({"trainer_config.per_device_train_batch_size=3"}) ==
        "command line: trainer_config.per_device_train_batch_size=3: "
        "unknown key; use trainer_config.batch_size");
  CHECK(loading.error("trainer_config: {bf16: true}") ==
        "cfg.yaml:1:18: trainer_config.bf16: unknown key; use trainer_config.use_amp=true "
        "trainer_config.amp_dtype=bfloat16");
  CHECK(loading.error("num_train_epochs: 3").find("use trainer_config.max_epochs") !=
        std::string::npos);
  CHECK(loading.error_with({"load_in_4bit=true"}).ends_with("; use quantize.base=nf4"));
  CHECK(
      loading.error_with({"trainer_config.optim=adamw_bnb_8bit"})
          .ends_with("use optimizer_config.name (AdamW in 8 bits: optimizer_config.state_bits=8)"));
  CHECK(loading.error_with({"gradient_checkpointing=true"})
            .ends_with("use gpt_config.activation_checkpointing or "
                       "llama_config.activation_checkpointing"));
  CHECK(loading.error("tokens: ['<tool>']").ends_with("use data_config.add_tokens"));
  CHECK(loading.error("new_special_tokens: ['<tool>']")
            .ends_with("use data_config.tokenizer (a folder with them: docs/fine-tune.md)"));
  for (const char* change : {"report_to=wandb", "wandb_project=x", "mlflow_run_name=x"}) {
    CAPTURE(change);
    CHECK(loading.error_with({change}).find("use metrics_config.") != std::string::npos);
  }
  CHECK(loading.error_with({"metrics_config.wandb=true"})
            .ends_with("off | offline | online; choose one"));
  CHECK(loading.error_with({"metrics_config.wandb=offline", "logging_config.jsonl=false"})
            .ends_with("logging_config.jsonl=false turns off; remove that"));
  for (const auto& [name, ours] : peer_names()) {
    INFO(name);
    if (ours.starts_with("ddp-run ") || ours.starts_with("scripts/")) continue;
    std::istringstream words(ours);
    for (std::string word; words >> word && word.front() != '(';) {
      const std::string key = word.substr(0, word.find_first_of("=,"));
      if (key.find('.') != std::string::npos) CHECK(find_field(key) != nullptr);
    }
    for (const Field& field : config_fields()) CHECK_FALSE(field.path == "trainer_config." + name);
  }
}

TEST_CASE("a learning rate of zero is accepted, as a trial run has it") {
  const Loading loading;
  CHECK(loading.with({"optimizer_config.learning_rate=0"}).optimizer.learning_rate == 0.0);
}

TEST_CASE("values that no machine can hold are refused, alone and together") {
  const Loading loading;
  const auto error = [&](const std::string& change) { return loading.error_with({change}); };
  for (const char* change :
       {"trainer_config.batch_size=4611686018427387904",
        "data_config.block_size=9223372036854775807", "gpt_config.n_layer=1e9",
        "trainer_config.grad_accumulation_steps=1e12",
        "trainer_config.max_steps=9000000000000000000", "trainer_config.snapshot_every=1e300",
        "data_config.stride=4611686018427387904"}) {
    CAPTURE(change);
    CHECK(error(change).find("is out of range") != std::string::npos);
  }
  CHECK(loading
            .error_with({"trainer_config.batch_size=1000000", "data_config.block_size=1000000",
                         "trainer_config.grad_accumulation_steps=1001"})
            .find("tokens per step") != std::string::npos);
}

TEST_CASE("a number of steps or tokens that may be auto has no fraction") {
  const Loading loading;
  CHECK(loading.error_with({"data_config.stride=1.5"}) ==
        "command line: data_config.stride=1.5: 1.5 is not a whole number; give "
        "auto or a number of tokens");
  for (const char* key : {"trainer_config.snapshot_every", "gpt_config.loss_chunk_size",
                          "gpt_config.pad_vocab_to_multiple_of"}) {
    CAPTURE(key);
    CHECK(loading.error_with({std::string(key) + "=64.5"}).find("is not a whole number") !=
          std::string::npos);
    CHECK_NOTHROW(loading.with({std::string(key) + "=64.0"}));
  }
  CHECK(loading.with({"distributed_config.hang_timeout_s=1.5"}).distributed.hang_timeout_s.value ==
        1.5);
}

TEST_CASE("a value of the wrong type is refused with the value and its type") {
  const Loading loading;
  const auto error = [&](const std::string& line) {
    return loading.error("data_config: {path: data/input.txt}\ntrainer_config:\n  " + line);
  };
  CHECK(error("batch_size: lots") ==
        "cfg.yaml:3:15: trainer_config.batch_size: 'lots' (str) is not an integer; "
        "give "
        "a whole number >= 1 and <= 1000000");
  CHECK(error("eval_iters: all") ==
        "cfg.yaml:3:15: trainer_config.eval_iters: 'all' (str) is not an integer; give null, or a "
        "whole number >= 1 and <= 1000000000");
  for (const char* value : {"true", "3.7", "[1]", "{a: 1}", "''", "1e30", "'99999999999999999999'",
                            "'0x10'", "'1__0'"}) {
    CAPTURE(value);
    CHECK(error(std::string("batch_size: ") + value).find("is not an integer") !=
          std::string::npos);
  }
  CHECK(error("grad_norm_clip: true").find("is not a number") != std::string::npos);
  CHECK(error("grad_norm_clip: 1:30.x").find("is not a number") != std::string::npos);
  CHECK(error("use_amp: 1.0").find("is not a boolean") != std::string::npos);
  CHECK(error("use_amp: maybe").find("give true or false") != std::string::npos);
  CHECK(error("snapshot_path: [a]").find("is not a string") != std::string::npos);
  CHECK(loading.error_with({"trainer_config=3"}) ==
        "command line: trainer_config=3: is a section, not a value; set its keys, "
        "e.g. trainer_config.max_epochs=VALUE");
  CHECK(loading.error("trainer_config:\n  batch_size:8") ==
        "cfg.yaml:2:3: trainer_config: no space after the colon in 'batch_size:8'; write "
        "batch_size: 8");
  CHECK(loading.error("trainer_config: 3").find("cfg.yaml:1:17: trainer_config: is a section") ==
        0);
  CHECK(loading.error_with({"optimizer_config.betas=0.9"}).find("a list of 2 floats") !=
        std::string::npos);
  CHECK(loading.error_with({"optimizer_config.betas=[0.9]"}).find("e.g. [0.9, 0.95]") !=
        std::string::npos);
}

TEST_CASE("a group of parameters that cannot be read names the entry, the key and the fix") {
  const Loading loading;
  const std::pair<const char*, const char*> cases[] = {
      {"3", "is not a list"},
      {"[x]", "entry 0: 'x' (str) is not a group; give a list of groups, e.g. [{pattern: "},
      {"[{lr_mult: 1}]", "entry 0: has no pattern"},
      {"[{pattern: []}]", "entry 0: pattern: is empty"},
      {"[{pattern: 'a'}, {pattern: 'b', lr_mul: 1}]",
       "entry 1: 'lr_mul' is not a key of a group; did you mean 'lr_mult'?"},
      {"[{pattern: 'a', lr_mult: 0}]", "entry 0: lr_mult: 0.0 is out of range; give a number > 0"},
      {"[{pattern: 'a', weight_decay: x}]", "entry 0: weight_decay: 'x' (str) is not a number"},
      {"[{pattern: 'a', frozen: true, lr_mult: 2}]", "entry 0: frozen: true excludes all keys"},
      {"[{pattern: 'a', optimizer: muon}]", "needs optimizer_config.name=muon"},
      {"[{pattern: 'a', optimizer: sgd}]", "is muon or adamw"}};
  for (const auto& [value, message] : cases) {
    CAPTURE(value);
    CHECK_THAT(loading.error_with({std::string("optimizer_config.param_groups=") + value}),
               Catch::Contains("optimizer_config.param_groups") && Catch::Contains(message));
  }
}

TEST_CASE("a value out of its range names the range") {
  const Loading loading;
  for (const char* text :
       {"data_config.block_size=0", "data_config.train_split=0", "data_config.train_split=1.5",
        "data_config.truncate=0", "data_config.stride=0", "gpt_config.embd_pdrop=1",
        "gpt_config.attn_pdrop=-0.1", "trainer_config.max_epochs=0", "trainer_config.max_steps=0",
        "trainer_config.batch_size=-1", "trainer_config.data_loader_workers=-1",
        "trainer_config.grad_norm_clip=-1", "trainer_config.seed=-1",
        "optimizer_config.learning_rate=-1", "optimizer_config.learning_rate=inf",
        "optimizer_config.betas=[0.9,1]", "optimizer_config.eps=0",
        "distributed_config.timeout_s=0", "distributed_config.bucket_cap_mb=nan"}) {
    CAPTURE(text);
    const std::string error = loading.error_with({text});
    CHECK(error.find(std::string("command line: ") + text + ": ") == 0);
    CHECK(error.find("is out of range; give") != std::string::npos);
  }
  CHECK(loading.with({"data_config.train_split=1"}).data.train_split == 1.0);
  CHECK(loading.with({"trainer_config.data_loader_workers=0"}).trainer.data_loader_workers == 0);
}

TEST_CASE("missing values are listed together") {
  const Loading loading;
  CHECK(loading.error("") ==
        "cfg.yaml: data_config.path: no value given; add data_config.path=VALUE to "
        "the command line or to the file");
  const std::string error =
      loading.error("trainer_config:\n  seed: ???\ndata_config:\n  path: ???");
  CHECK(error.find("data_config.path") != std::string::npos);
  CHECK(error.find("trainer_config.seed") != std::string::npos);
  CHECK(error.find("no value given") != std::string::npos);
}

TEST_CASE("sizes that do not fit together are refused") {
  const Loading loading;
  CHECK(loading.error(kExample, {"gpt_config.n_embd=513"}) ==
        "command line: gpt_config.n_embd=513: 513 is not divisible by "
        "gpt_config.n_head=8; the "
        "nearest widths are 512 and 520");
  CHECK(loading.error(kExample, {"gpt_config.model_type=gpt2"})
            .find("cfg.yaml:7:12: gpt_config.n_layer: conflicts with gpt_config.model_type=gpt2") ==
        0);
  CHECK(loading.error_with({"gpt_config.n_layer=2", "gpt_config.n_embd=8"})
            .find("gpt_config.n_head is missing") != std::string::npos);
  CHECK(loading.error_with({"gpt_config.model_type=gpt3"}).find("did you mean 'gpt2'?") !=
        std::string::npos);
}

TEST_CASE("a data file that cannot be used is named with the directory it was looked for in") {
  const Loading loading;
  CHECK(loading.error("data_config:\n  path: data/none.txt") ==
        "cfg.yaml:2:9: data_config.path: data/none.txt: No such file or directory (from " +
            loading.folder() +
            "); give a file or a folder; relative paths start at the current directory");
  CHECK(loading.error("data_config:\n  path: data/*.none").find("No such file") !=
        std::string::npos);
  CHECK(loading.error("data_config:\n  path: /none").find("(from") == std::string::npos);
}

TEST_CASE("a recipe's text that is not there is named with the command that fetches it") {
  const Loading loading;
  const std::string config = "data_config:\n  path: ./data/input.txt";
  std::filesystem::remove("data/input.txt");
  const auto missing = [&] { return loading.error(config); };
  CHECK_THAT(missing(), Catch::Contains("scripts/fetch_data.sh of the source code puts there"));
  std::filesystem::create_directory("scripts");
  test::write_file("scripts/fetch_data.sh", "");
  std::filesystem::permissions("scripts/fetch_data.sh", std::filesystem::perms::owner_all);
  CHECK_THAT(missing(), Catch::EndsWith("); ./scripts/fetch_data.sh fetches it"));
  CHECK_THAT(loading.error("data_config:\n  path: data/wikitext-2/train.txt"),
             Catch::EndsWith("; ./scripts/fetch_data.sh wikitext-2 fetches it"));
}

TEST_CASE("a key that the task has no use for is refused with its place") {
  const Loading loading;
  const std::string head = "task: image_classification\ndata_config:\n  path: data/input.txt\n";
  for (const std::string key : {"stride: 2", "format: text", "block_size: 64", "tokenizer: char"}) {
    CHECK_THAT(loading.error(head + "  " + key),
               Catch::StartsWith("cfg.yaml:4:") &&
                   Catch::Contains("does not apply to task=image_classification"));
  }
  for (const std::string key : {"sample_every_steps=5", "sample_prompt=a", "sample_tokens=3"}) {
    for (const std::string task : {"masked_lm", "text_classification", "image_classification"}) {
      CHECK_THAT(loading.error_with({"task=" + task, "trainer_config." + key}),
                 Catch::Contains("does not apply to task=" + task));
    }
  }
  CHECK_THAT(loading.error_with({"task=masked_lm", "data_config.stride=2"}),
             Catch::Contains("data_config.stride=2: does not apply to task=masked_lm"));
}

TEST_CASE("an empty folder of the run is refused at its key") {
  CHECK(Loading().error_with({"hydra.run.dir="}) ==
        "command line: hydra.run.dir=: is empty; give a string");
}

TEST_CASE("every message is one line") {
  const Loading loading;
  CHECK(loading.error("data_config: {path: \"a\\nb\"}").find('\n') == std::string::npos);
  CHECK(loading.error("trainer_config: {batch_size: \"a\\nb\"}").find('\n') == std::string::npos);
  CHECK(loading.error("\"a\\nb\": 1").find('\n') == std::string::npos);
  CHECK(loading.error_with({"a\n=1"}).find('\n') == std::string::npos);
}

TEST_CASE("settings of Hydra that change nothing are named in one warning") {
  const Loading loading;
  test::write_file("cfg.yaml",
                   "data_config: {path: data/input.txt}\n"
                   "hydra: {job: {env_set: {A: b}}, callbacks: {x: {y: 1}}, verbose: true}");
  const auto warning = [](const Overrides& overrides) {
    return load_run(ConfigSource::of_file("cfg.yaml"), overrides).warning;
  };
  CHECK(warning({}) == "hydra.callbacks, hydra.job.env_set: ignored, not used by trainer");
  CHECK(warning({"~hydra.job.env_set.A", "~hydra.callbacks.x", "hydra/job_logging=none",
                 "hydra.sweeper.max_batch_size=2"}) ==
        "hydra.sweeper.max_batch_size, hydra/job_logging=none: ignored, not used by trainer");
  test::write_file("cfg.yaml", "data_config: {path: data/input.txt}\nhydra: {run: {dir: x}}");
  CHECK(warning({"hydra.job.name=y", "hydra.output_subdir=null", "hydra.job.num=3"}).empty());
  CHECK(warning({"hydra.runtime.cwd=/x", "hydra.job.config_name=y"}) ==
        "hydra.job.config_name, hydra.runtime.cwd: ignored, not used by trainer");
}

TEST_CASE("a new key in the block hydra is refused like one in any other section") {
  const Loading loading;
  CHECK(loading.error_with({"+hydra.zzz=1"}).find("+hydra.zzz=1: unknown key") !=
        std::string::npos);
  CHECK(loading.error_with({"+hydra.run.dri=x"}).find("did you mean 'hydra.run.dir'?") !=
        std::string::npos);
  loading.with({"+hydra.job.env_set.A=b"});  // a map of any names
}

TEST_CASE("a default cannot be removed, and the message does not blame the name") {
  const Loading loading;
  CHECK(loading.error_with({"~trainer_config.seed"}) ==
        "command line: ~trainer_config.seed: 'trainer_config.seed' is not given, so ~ has nothing "
        "to remove; its default applies already");
  CHECK(loading.error_with({"~trainer_config.sede"}).find("did you mean 'trainer_config.seed'?") !=
        std::string::npos);
}

TEST_CASE("the file that was meant is named without the folder of now") {
  const Loading loading;
  test::write_file("none2.yaml", "");
  const auto error = [](const std::string& file) {
    return test::error_of<UserError>([&] { load_config(ConfigSource::of_file(file), {}); });
  };
  CHECK(error("none.yaml").ends_with("did you mean 'none2.yaml'?"));
  std::filesystem::create_directory("more");
  test::write_file("more/none2.yaml", "");
  CHECK(error("more/none.yaml").ends_with("did you mean 'more/none2.yaml'?"));
}

}  // namespace
}  // namespace ddp::train
