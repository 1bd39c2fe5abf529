// Trainings that cannot be: one line each, nothing trained or saved.
#include "tests/support/catch.h"

#include "tests/trainer/app/in_process.h"

namespace ddp::test {
namespace {

void check_override_refused(const std::string& override_text, const Words& said) {
  const Workspace place;
  check_refused(in_process(alone(place, {override_text})), said);
  CHECK(place.new_files().empty());
}

}  // namespace

TEST_CASE("configuration files that cannot be used are named with the place of the mistake") {
  const Workspace place;
  place.write("broken.yaml", "data_config:\n  path: text.txt\n  block_size: [32\ngpt_config: {}\n");
  place.write("type.yaml", "data_config: {path: text.txt}\ntrainer_config:\n  max_steps: lots\n");
  const auto with = [&](const std::string& file) {
    return in_process(trainer(place, {"--config", file}));
  };
  check_refused(with("missing.yaml"), {"missing.yaml", "No such file"});
  check_refused(with("broken.yaml"), {"broken.yaml:3:", "not valid YAML", "is never closed"});
  check_refused(with("type.yaml"), {"type.yaml:3:", "lots", "max_steps"});
  CHECK(place.new_files() == std::set<std::string>{"broken.yaml", "type.yaml"});
}

TEST_CASE("an override that cannot be used is refused") {
  check_override_refused("trainer_config.max_stepz=3",
                         {"max_stepz", "did you mean 'trainer_config.max_steps'?"});
  check_override_refused("trainer_config.max_steps=lots", {"lots", "trainer_config.max_steps"});
  check_override_refused("gpt_config.n_embd=33", {"n_embd", "33", "n_head=2"});
}

TEST_CASE("a text that is too short is refused") {
  const Workspace place;
  place.write("short.txt", "Shorter than one block.");
  check_refused(in_process(alone(place, {"data_config.path=short.txt"})),
                {"short.txt", "block_size"});
  CHECK(place.new_files() == std::set<std::string>{"short.txt"});
}

TEST_CASE("a batch that is larger than the training set is refused") {
  check_override_refused("trainer_config.batch_size=100000", {"batch_size 100000", "138"});
}

TEST_CASE("a text that is not there is refused") {
  check_override_refused("data_config.path=missing.txt", {"missing.txt", "No such file"});
}

TEST_CASE("places that cannot be written are found before training starts") {
  for (const char* path : {"text.txt/below/snapshot.pt", "/proc/no/snapshot.pt", "tmp"}) {
    check_override_refused("trainer_config.snapshot_path=" + std::string(path),
                           {"trainer_config.snapshot_path"});
  }
  for (const char* path : {"text.txt/below", "/proc/no"}) {
    check_override_refused("hydra.run.dir=" + std::string(path), {"hydra.run.dir"});
  }
}

TEST_CASE("offload is refused on a CPU, and where ranks divide layers") {
  const std::string offload = "distributed_config.offload=optimizer";
  check_override_refused(offload, {offload, "this run computes on the CPU; remove offload, or",
                                   "distributed_config.strategy=zero1"});
  check_override_refused("distributed_config.offload=weights", {"weights", "none | optimizer"});
  const Workspace place;
  check_refused(in_process(alone(place, {offload, "distributed_config.tensor=2"})),
                {"distributed_config.offload", "not supported with tensor=2"});
}

TEST_CASE("training options that cannot be are refused with their names") {
  const Workspace place;
  const std::pair<Words, std::string> cases[] = {
      {{"optimizer_config.warmup_steps=100", "optimizer_config.lr_schedule=cosine",
        "optimizer_config.decay_steps=50"},
       "optimizer_config.decay_steps: 50 is not after warmup_steps=100"},
      {{"optimizer_config.lr_schedule=cosin"}, "did you mean 'cosine'"},
      {{"optimizer_config.min_lr=1"}, "optimizer_config.min_lr"},
      {{"optimizer_config.warmup_steps=5", "optimizer_config.warmup_ratio=0.1"},
       "optimizer_config.warmup_ratio=0.1: conflicts with optimizer_config.warmup_steps=5"},
      {{"optimizer_config.warmup_ratio=1.5"}, "optimizer_config.warmup_ratio=1.5"},
      {{"distributed_config.tensor=2", "trainer_config.label_smoothing=0.1"},
       "trainer_config.label_smoothing needs whole ones"},
      {{"trainer_config.label_smoothing_factor=0.1"}, "trainer_config.label_smoothing"},
      {{"optimizer_config.name=sgd", "optimizer_config.nesterov=true"}, "needs momentum"},
      {{"optimizer_config.name=sgd", "optimizer_config.state_bits=8"},
       "optimizer_config.state_bits=8: is for the averages of adamw and adam, not for sgd"},
      {{"distributed_config.tensor=2", "optimizer_config.state_bits=8"},
       "optimizer_config.state_bits=8: needs whole blocks of 256 elements"},
      {{"optimizer_config.state_bits=16"}, "'16' is not one of 32 | 8"},
      {{"distributed_config.pipeline=2", "distributed_config.tensor=2",
        "distributed_config.strategy=zero3"},
       "strategy=zero3 communicates in every micro-batch, and each would stop the stages after it; "
       "use strategy=zero1"},
      {{"distributed_config.pipeline=2", "distributed_config.strategy=zero2"},
       "strategy=zero2 communicates in every micro-batch"},
      {{"distributed_config.pipeline=2", "distributed_config.pipeline_chunks=2"},
       "1f1b has one stage on each rank"},
      {{"distributed_config.tensor=2", "optimizer_config.name=muon"}, "use name=adamw"},
      {{"distributed_config.sequence_parallel=true"}, "set distributed_config.tensor"},
      {{"profile.start=41"}, "beyond the end of the run, trainer_config.max_steps=40"},
      {{"profile.start=35", "trainer_config.max_steps=null", "trainer_config.max_epochs=1"},
       "profile.start: 35 is beyond the end of the run, step 34"},
      {{"profile.start=0"}, "profile.start"},
      {{"data_config.train_split=1", "trainer_config.early_stopping_patience=2"},
       "trainer_config.early_stopping_patience needs evaluations"},
      {{"data_config.train_split=1", "trainer_config.load_best_model_at_end=true"},
       "trainer_config.load_best_model_at_end needs evaluations"},
      {{"data_config.test_path=missing.txt"},
       "data_config.test_path=missing.txt: missing.txt: No such"},
      {{"trainer_config.metric_for_best_model=tokens"}, "'tokens' is no metric of this task"},
      {{"trainer_config.metric_for_best_model=f1"},
       "choose one of loss, perplexity, bits_per_character, accuracy"},
      {{"trainer_config.freeze=[\"h.9.*\"]"}, "no parameter matches 'h.9.*'"},
      {{"trainer_config.freeze=[\"*\"]"}, "every parameter is frozen"},
      {{"optimizer_config.param_groups=[{pattern: 'h.9.*', lr_mult: 0.1}]"},
       "optimizer_config.param_groups[0]: no parameter matches 'h.9.*'"}};
  for (const auto& [options, message] : cases)
    check_refused(in_process(alone(place, options)), {message});
}

TEST_CASE("NCCL and several ranks on a device exclude each other") {
  const Workspace place;
  check_refused(in_process(alone(place, {"distributed_config.ranks_per_device=2",
                                         "distributed_config.backend=nccl"})),
                {"2 ranks cannot share a GPU with distributed_config.backend=nccl"});
}

TEST_CASE("plan refuses what it cannot compute in one line") {
  const Workspace place;
  for (const Words& wrong : std::vector<Words>{{"--gpus=0"},
                                               {"--memory=0"},
                                               {"--link=0"},
                                               {"--nodes=3"},
                                               {"--config=nowhere.yaml"},
                                               {"data_config.path=nowhere.txt"},
                                               {"trainer_config.global_batch_size=4"},
                                               {"distributed_config.strategy=zero9"}}) {
    INFO(wrong[0]);
    const Words plan = {"plan", "--config", "config.yaml", "--gpus", "2", "--memory", "80"};
    check_refused(in_process(trainer(place, joined(plan, wrong))), {});
  }
}

}  // namespace ddp::test
