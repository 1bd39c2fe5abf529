#include "trainer/app/modes.h"

#include <fmt/format.h>
#include <torch/version.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "launcher/worker_contract.h"
#include "trainer/app/multirun.h"
#include "trainer/app/train_job.h"
#include "trainer/config/compose/load_config.h"
#include "trainer/config/keys/config_text.h"
#include "trainer/model/generate.h"
#include "trainer/parallel/dist_env.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/sha256.h"
#include "trainer/snapshot/remote_snapshots.h"
#include "trainer/snapshot/snapshot.h"
#include "trainer/task/causal_lm.h"

namespace ddp::train {
namespace {

using Json = nlohmann::ordered_json;

void print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    throw RunError(fmt::format("cannot write to standard output: {}", std::strerror(errno)));
  }
}

Json tensor_report(const SafetensorsFile& file) {
  Json tensors = Json::array();
  for (const auto& tensor : file.tensors()) {
    const std::string sum = Sha256().update(tensor.data, tensor.size).hex();
    tensors.push_back(
        {{"name", tensor.name}, {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"sha256", sum}});
  }
  return tensors;
}

int64_t model_parameters(const SafetensorsFile& file) {
  int64_t count = 0;
  for (const auto& tensor : file.tensors()) {
    if (tensor.name.rfind("model.", 0) != 0) continue;
    int64_t elements = 1;
    for (const int64_t dim : tensor.shape) elements *= dim;
    count += elements;
  }
  return count;
}

Json snapshot_report(const OpenedSnapshot& snapshot) {
  const auto& meta = snapshot.meta;
  return {
      {"path", snapshot.path},
      {"format_version", kSnapshotVersion},
      {"run_id", meta.run_id},
      {"step", meta.step},
      {"epoch", meta.cursor.epoch},
      {"position", meta.cursor.position},
      {"optimizer_step", meta.optimizer_step},
      {"parameters", model_parameters(*snapshot.file)},
      {"vocabulary_size", tokenizer_of(meta.task)->size()},
      {"world_size", meta.world_size},
      {"micro_batches_per_step", meta.micro_batches_per_step},
      {"grad_scaler",
       {{"scale", meta.grad_scaler.scale}, {"growth_tracker", meta.grad_scaler.growth_tracker}}},
      {"data_sha256", meta.data_sha256},
      {"content_sha256", content_sha256(*snapshot.file)},
      {"config", Json::parse(meta.config_json)},
      {"tensors", tensor_report(*snapshot.file)}};
}

std::string as_table(const Json& report) {
  std::string text;
  for (const auto& [key, value] : report.items()) {
    if (key == "tensors" || key == "config") continue;
    text += fmt::format("{:<22} {}\n", key,
                        value.is_string() ? value.get<std::string>() : value.dump());
  }
  text += "config\n";
  for (const auto& [section, keys] : report["config"].items()) {
    for (const auto& [key, value] : keys.items())
      text += fmt::format("  {}.{} = {}\n", section, key, value.dump());
  }
  text += "tensors (sha256, dtype, shape, name)\n";
  for (const auto& tensor : report["tensors"]) {
    text += fmt::format("  {} {:<4} {:<14} {}\n", tensor["sha256"].get<std::string>(),
                        tensor["dtype"].get<std::string>(), tensor["shape"].dump(),
                        tensor["name"].get<std::string>());
  }
  return text;
}

}  // namespace

int run_train(const TrainerArgs& args) {
  ::signal(SIGPIPE, SIG_IGN);     // a console that went away must not end the training
  ::signal(SIGXFSZ, SIG_IGN);     // nor a snapshot that is larger than a limit on file sizes
  ::signal(SIGUSR2, [](int) {});  // asked how it goes before there is anything to say
  if (args.multirun) return run_multirun(args);
  const DistEnv env = DistEnv::from_environment();
  const JobResult result =
      train_job(load_run(args.config, args.overrides), env, OnFailure::kEndProcess);
  return result.stop_signal == 0 ? launch::kExitDone : launch::kExitPreempted;
}

int run_show(const TrainerArgs& args) {
  print(show_text(args));
  return launch::kExitDone;
}

int run_generate(const TrainerArgs& args) {
  const auto& options = args.generate;
  const FetchedSnapshot fetched(options.snapshot);
  const OpenedSnapshot snapshot = open_snapshot(fetched.file());
  const Config config = config_from_json(snapshot.meta.config_json);
  const auto tokenizer = tokenizer_of(snapshot.meta.task);
  const auto prompt = tokenizer->encode(options.prompt);
  if (prompt.empty())
    throw UserError(
        "--prompt is empty; give at least one character to start from, such as --prompt ' '");
  GPT model(config.gpt, tokenizer->size(), config.data.block_size, 0);
  for (auto& p : model->model_parameters()) snapshot.load_into("model." + p.name, p.tensor);

  SamplingOptions sampling;
  sampling.max_new_tokens = options.max_new_tokens;
  sampling.temperature = options.temperature;
  sampling.top_k = options.top_k;
  sampling.greedy = options.greedy;
  sampling.seed = static_cast<uint64_t>(options.seed);
  print(options.prompt);
  generate(model, prompt, sampling,
           [&](int64_t token) { print(tokenizer->decode(static_cast<int32_t>(token))); });
  if (::isatty(STDOUT_FILENO) != 0) print("\n");
  return launch::kExitDone;
}

int run_inspect(const TrainerArgs& args) {
  const FetchedSnapshot fetched(args.inspect_snapshot);
  const OpenedSnapshot snapshot = open_snapshot(fetched.file());
  const Json report = snapshot_report(snapshot);
  print(args.inspect_json ? report.dump(2) + "\n" : as_table(report));
  return launch::kExitDone;
}

int run_version() {
  print(fmt::format("trainer {} (LibTorch {})\n", DDP_VERSION, TORCH_VERSION));
  return launch::kExitDone;
}

}  // namespace ddp::train
