// What a configuration's values mean: defaults, forms of a value, overrides, interpolations, paths.
#include <cstdlib>

#include "tests/support/catch.h"

#include "tests/trainer/config/loading.h"
#include "trainer/config/keys/config_text.h"
#include "trainer/config/keys/idle_keys.h"
#include "trainer/config/keys/key_table.h"

namespace ddp::train {
namespace {

using test::kExample;
using test::Loading;

TEST_CASE("the example's configuration is read as it stands") {
  const Loading loading;
  const Config config = loading.load(kExample);
  CHECK(config.data.path == loading.folder() + "/data/input.txt");
  CHECK(config.data.block_size == 128);
  CHECK(config.data.train_split == 0.9);
  CHECK(config.data.truncate == 0.02);
  CHECK(config.gpt.model_type.empty());
  CHECK(config.gpt.n_layer == 8);
  CHECK(config.gpt.n_head == 8);
  CHECK(config.gpt.n_embd == 512);
  CHECK(config.trainer.max_epochs == 10);
  CHECK_FALSE(config.trainer.max_steps.has_value());
  CHECK(config.trainer.batch_size == 216);
  CHECK(config.trainer.data_loader_workers == 4);
  CHECK(config.trainer.grad_norm_clip == 1.0);
  CHECK(config.trainer.snapshot_path == loading.folder() + "/gpt_snapshot.pt");
  CHECK(config.trainer.save_every == 3);
  CHECK(config.trainer.use_amp);
  CHECK(config.optimizer.weight_decay == 0.1);
  CHECK(config.optimizer.learning_rate == 0.0003);
  CHECK(config.optimizer.betas == std::array<double, 2>{0.9, 0.95});
  CHECK(config.hydra.run_dir == loading.folder());
}

TEST_CASE("only the data path is needed, and the model is then gpt2") {
  const Loading loading;
  const Config config = loading.with({});
  CHECK(config.gpt.model_type == "gpt2");
  CHECK(config.gpt.n_layer == 12);
  CHECK(config.gpt.n_embd == 768);
  CHECK(config.trainer.seed == 1337);
  CHECK_FALSE(config.trainer.use_amp);
}

TEST_CASE("the nine presets give the sizes of minGPT") {
  const Loading loading;
  const auto sizes = [&](const std::string& name) {
    const GptConfig gpt = loading.with({"gpt_config.model_type=" + name}).gpt;
    return std::array<int64_t, 3>{gpt.n_layer, gpt.n_head, gpt.n_embd};
  };
  CHECK(sizes("openai-gpt") == std::array<int64_t, 3>{12, 12, 768});
  CHECK(sizes("gpt2") == std::array<int64_t, 3>{12, 12, 768});
  CHECK(sizes("gpt2-medium") == std::array<int64_t, 3>{24, 16, 1024});
  CHECK(sizes("gpt2-large") == std::array<int64_t, 3>{36, 20, 1280});
  CHECK(sizes("gpt2-xl") == std::array<int64_t, 3>{48, 25, 1600});
  CHECK(sizes("gopher-44m") == std::array<int64_t, 3>{8, 16, 512});
  CHECK(sizes("gpt-mini") == std::array<int64_t, 3>{6, 6, 192});
  CHECK(sizes("gpt-micro") == std::array<int64_t, 3>{4, 4, 128});
  CHECK(sizes("gpt-nano") == std::array<int64_t, 3>{3, 3, 48});
}

TEST_CASE(
    "integers, floats and booleans are taken in every form that OmegaConf takes, and 3.0 and 1e3") {
  const Loading loading;
  const Config config = loading.load(
      "data_config: {path: data/input.txt, block_size: \"64\", truncate: 1}\n"
      "trainer_config: {batch_size: 8.0, save_every: 1e1, log_every_steps: 1_000, use_amp: 'on', "
      "seed: 0x10}\n"
      "optimizer_config: {learning_rate: \"1e-3\", weight_decay: 0, betas: [0, '0.5']}\n"
      "distributed_config: {static_graph: 1}");
  CHECK(config.data.block_size == 64);
  CHECK(config.data.truncate == 1.0);
  CHECK(config.trainer.batch_size == 8);
  CHECK(config.trainer.save_every == 10);
  CHECK(config.trainer.log_every_steps == 1000);
  CHECK(config.trainer.seed == 16);
  CHECK(config.trainer.use_amp);
  CHECK(config.optimizer.learning_rate == 1e-3);
  CHECK(config.optimizer.betas == std::array<double, 2>{0.0, 0.5});
  CHECK(config.distributed.static_graph);
}

TEST_CASE("null switches off what can be off") {
  const Loading loading;
  const Config config =
      loading.with({"trainer_config.use_amp=null", "trainer_config.grad_norm_clip=null",
                    "trainer_config.max_steps=null", "gpt_config.model_type=null"});
  CHECK_FALSE(config.trainer.use_amp);
  CHECK(config.trainer.grad_norm_clip == 0.0);
  CHECK_FALSE(config.trainer.max_steps.has_value());
  CHECK(config.gpt.model_type == "gpt2");
  CHECK(loading.error_with({"trainer_config.batch_size=null"}) ==
        "command line: trainer_config.batch_size=null: cannot be null; "
        "give a value or omit the key");
}

TEST_CASE("choices are taken under all their names") {
  const Loading loading;
  CHECK(loading.with({"trainer_config.amp_dtype=bf16"}).trainer.amp_dtype == AmpDtype::kBFloat16);
  CHECK(loading.with({"trainer_config.amp_dtype=fp16"}).trainer.amp_dtype == AmpDtype::kFloat16);
  CHECK(loading.with({"gpt_config.activation=gelu_new"}).gpt.activation == Activation::kGeluTanh);
  CHECK(loading.with({"gpt_config.activation=gelu_tanh"}).gpt.activation == Activation::kGeluTanh);
  CHECK(loading.with({"distributed_config.backend=gloo"}).distributed.backend == Backend::kGloo);
  CHECK(loading.with({"trainer_config.device=cpu"}).trainer.device == DeviceChoice::kCpu);
  CHECK(loading.with({"trainer_config.device=gpu"}).trainer.device == DeviceChoice::kCuda);
  CHECK(loading.error_with({"distributed_config.backend=glo"}) ==
        "command line: distributed_config.backend=glo: 'glo' is not "
        "one of auto | gloo | nccl; did you mean 'gloo'?");
}

TEST_CASE("max_steps alone lifts the limit of epochs") {
  const Loading loading;
  CHECK(loading.with({"trainer_config.max_steps=100"}).trainer.max_epochs == kUnlimitedEpochs);
  CHECK(loading.with({"trainer_config.max_steps=100", "trainer_config.max_epochs=2"})
            .trainer.max_epochs == 2);
  CHECK(loading.with({}).trainer.max_epochs == 10);
}

TEST_CASE("overrides win over the file, the last one over the others") {
  const Loading loading;
  const Config config =
      loading.load(kExample, {"trainer_config.batch_size=4", "+trainer_config.seed=5",
                              "trainer_config.batch_size=8", "optimizer_config.betas=[0.8,0.99]",
                              "~trainer_config.save_every"});
  CHECK(config.trainer.batch_size == 8);
  CHECK(config.trainer.seed == 5);
  CHECK(config.trainer.save_every == TrainerConfig{}.save_every);
  CHECK(config.optimizer.betas == std::array<double, 2>{0.8, 0.99});
}

TEST_CASE("interpolations take values from other keys, the environment and the clock") {
  const Loading loading;
  ::setenv("DDP_TEST_SEED", "77", 1);
  const Config config = loading.load(
      "data_config: {path: data/input.txt}\n"
      "trainer_config: {batch_size: 12, save_every: '${trainer_config.batch_size}', seed: "
      "'${oc.env:DDP_TEST_SEED}', "
      "snapshot_path: 's_${trainer_config.batch_size}.pt'}\n"
      "hydra: {run: {dir: 'out/${now:%Y}'}, verbose: true, job: {chdir: false}, output_subdir: "
      "null}");
  ::unsetenv("DDP_TEST_SEED");
  CHECK(config.trainer.save_every == 12);
  CHECK(config.trainer.seed == 77);
  CHECK(config.trainer.snapshot_path == loading.folder() + "/s_12.pt");
  CHECK(config.hydra.run_dir.find(loading.folder() + "/out/20") == 0);
  CHECK(config.hydra.verbose.all);
}

TEST_CASE("the snapshot of a run is in its own directory unless snapshot_path says otherwise") {
  const Loading loading;
  const auto path = [&](const std::string& rest) {
    return loading.load("data_config: {path: data/input.txt}\n" + rest).trainer.snapshot_path;
  };
  CHECK(path("") == loading.folder() + "/snapshot.pt");
  CHECK(path("hydra: {run: {dir: outputs/a}}") == loading.folder() + "/outputs/a/snapshot.pt");
  CHECK(path("trainer_config: {snapshot_path: b.pt}\nhydra: {run: {dir: outputs/a}}") ==
        loading.folder() + "/b.pt");
}

TEST_CASE("all-linear means every layer as lora.targets only") {
  Config config;
  const auto assign = [&](const char* key) {
    return assign_field(*find_field(key), Node::of(std::string("all-linear")), config);
  };
  CHECK(assign("lora.targets").empty());
  CHECK(config.lora.targets == std::vector<std::string>{"*"});
  CHECK(assign("trainer_config.freeze") ==
        "'all-linear' (str) is not a list of strings; give a list, e.g. [\"...\"]");
}

TEST_CASE("each name of an enumeration stands for the value of that name") {
  const Loading loading;
  const Config text = loading.with(
      {"data_config.format=tokens", "trainer_config.device=cuda",
       "trainer_config.snapshot_if_busy=wait", "trainer_config.bad_step_policy=rollback",
       "distributed_config.backend=nccl", "distributed_config.gradient_compression=bf16",
       "logging_config.progress=plain", "optimizer_config.name=sgd"});
  CHECK(text.data.format == DataFormat::kTokens);
  CHECK(text.trainer.device == DeviceChoice::kCuda);
  CHECK(text.trainer.snapshot_if_busy == IfBusy::kWait);
  CHECK(text.trainer.bad_step_policy == BadStepPolicy::kRollback);
  CHECK(text.distributed.backend == Backend::kNccl);
  CHECK(text.distributed.gradient_compression == GradientCompression::kBf16);
  CHECK(text.logging.progress == ProgressStyle::kPlain);
  CHECK(text.optimizer.name == OptimizerName::kSgd);
  const Config images = loading.with({"task=image_classification", "image_config.network=dense",
                                      "data_config.on_bad_sample=skip"});
  CHECK(images.task == TaskKind::kImageClassification);
  CHECK(images.image.network == ImageNetworkKind::kDense);
  CHECK(images.data.on_bad_sample == OnBadSample::kSkip);
  CHECK(loading.with({"task=image_classification", "image_config.batch_norm=local"})
            .image.batch_norm == BatchNormKind::kLocal);
  const std::vector<std::pair<std::string, LrSchedule>> schedules = {
      {"constant", LrSchedule::kConstant},
      {"linear", LrSchedule::kLinear},
      {"polynomial", LrSchedule::kPolynomial},
      {"cosine", LrSchedule::kCosine},
      {"wsd", LrSchedule::kWsd},
      {"one_cycle", LrSchedule::kOneCycle},
      {"constant_with_warmup", LrSchedule::kConstant},
      {"cosine_with_min_lr", LrSchedule::kCosine},
      {"warmup_stable_decay", LrSchedule::kWsd}};
  for (const auto& [name, value] : schedules) {
    CAPTURE(name);
    CHECK(loading.with({"optimizer_config.lr_schedule=" + name}).optimizer.lr_schedule == value);
  }
}

TEST_CASE("groups of parameters are read from YAML and from the command line") {
  const Loading loading;
  const Config config = loading.load(
      "data_config: {path: data/input.txt}\n"
      "optimizer_config:\n  name: muon\n  param_groups:\n"
      "    - {pattern: transformer.wte.*, frozen: true}\n"
      "    - pattern: [\"*.bias\", \"*.ln_*\"]\n      lr_mult: 0.5\n      weight_decay: 0\n"
      "    - {pattern: lm_head.weight, optimizer: muon}\n");
  const auto& groups = config.optimizer.param_groups;
  REQUIRE(groups.size() == 3);
  CHECK(groups[0].frozen);
  CHECK(groups[1].patterns == std::vector<std::string>{"*.bias", "*.ln_*"});
  CHECK(groups[1].lr_mult == 0.5);
  CHECK(groups[1].weight_decay == 0.0);
  CHECK(groups[2].optimizer == OptimizerName::kMuon);
  CHECK_FALSE(groups[2].weight_decay);
  const Config stored = config_from_json(config_to_json(config));
  CHECK(config_to_yaml(stored) == config_to_yaml(config));
  CHECK(stored.optimizer.param_groups[1].patterns == groups[1].patterns);
  const Config given =
      loading.with({"optimizer_config.param_groups=[{pattern: '*.bias', lr_mult: 2}]"});
  REQUIRE(given.optimizer.param_groups.size() == 1);
  CHECK(given.optimizer.param_groups[0].lr_mult == 2.0);
}

TEST_CASE("paths become absolute, and ~ is the home directory") {
  const Loading loading;
  const std::string home = std::getenv("HOME") != nullptr ? std::getenv("HOME") : "";
  ::setenv("HOME", loading.folder().c_str(), 1);
  const Config config =
      loading.load("data_config: {path: ~/data/input.txt}", {"hydra.run.dir=a/../b/"});
  ::setenv("HOME", home.c_str(), 1);
  CHECK(config.data.path == loading.folder() + "/data/input.txt");
  CHECK(config.hydra.run_dir == loading.folder() + "/b");
}

TEST_CASE("a key that another one leaves without effect has a line, where it was chosen") {
  const Loading loading;
  const auto lines = [](const std::string& yaml, const test::Overrides& overrides = {}) {
    test::write_file("cfg.yaml", yaml);
    const RunConfig run = load_run(ConfigSource::of_file("cfg.yaml"), overrides);
    return idle_keys(run.config, run.given);
  };
  using Lines = std::vector<std::string>;
  const std::string data = "data_config: {path: data/input.txt}\n";
  CHECK(lines(data) == Lines{});
  CHECK(lines(data, {"optimizer_config.momentum=0.9", "optimizer_config.decay_steps=5",
                     "trainer_config.early_stopping_min_delta=0.1", "profile.steps=2",
                     "trainer_config.amp_dtype=bfloat16"}) ==
        Lines{"trainer_config.early_stopping_min_delta: has no effect without "
              "early_stopping_patience",
              "trainer_config.amp_dtype: has no effect without use_amp=true",
              "optimizer_config.decay_steps: has no effect with lr_schedule=constant",
              "optimizer_config.momentum: has no effect with name=adamw or adam; see betas",
              "profile.steps: has no effect without profile.start"});
  CHECK(lines(data, {"optimizer_config.name=sgd", "optimizer_config.momentum=0.9",
                     "optimizer_config.lr_schedule=cosine", "optimizer_config.decay_steps=5",
                     "trainer_config.use_amp=true", "trainer_config.amp_dtype=bfloat16"}) ==
        Lines{});
  CHECK(lines(data, {"optimizer_config.name=muon", "optimizer_config.momentum=0.9",
                     "optimizer_config.nesterov=true"}) ==
        Lines{"optimizer_config.nesterov: has no effect without name=sgd"});
  CHECK(lines(data, {"optimizer_config.nesterov=false", "trainer_config.amp_dtype=float16"}) ==
        Lines{});
  // As in the file that a run writes, which has all keys.
  CHECK(lines(data + "optimizer_config: {momentum: auto, min_lr: 0}\nprofile: {steps: 3}\n") ==
        Lines{});
  CHECK(lines(data + "trainer_config: {sample_tokens: 7}\n") ==
        Lines{"trainer_config.sample_tokens: has no effect without sample_every_steps"});
}

}  // namespace
}  // namespace ddp::train
