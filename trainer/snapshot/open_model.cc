#include "trainer/snapshot/open_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "trainer/config/keys/config_text.h"
#include "trainer/data/chat/chat_template_file.h"
#include "trainer/hydra/compose/folders.h"
#include "trainer/interop/base_settings.h"
#include "trainer/interop/pretrained_weights.h"
#include "trainer/model/causal_architecture.h"
#include "trainer/model/cost/bert_cost.h"
#include "trainer/model/load/run_folder.h"
#include "trainer/model/lora.h"
#include "trainer/model/pretrained_config.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/hub_name.h"
#include "trainer/snapshot/remote_snapshots.h"
#include "trainer/task/bert_task.h"
#include "trainer/task/causal_data.h"
#include "trainer/task/causal_lm.h"
#include "trainer/task/class_labels.h"
#include "trainer/tokenizer/tokenizer_folder.h"

namespace ddp::train {
namespace {

ModelBundle open_causal_folder(const CausalArchitecture& architecture, const std::string& folder) {
  Config config;
  config.model = architecture.name();
  architecture.take_folder(config, folder);
  architecture.start_from(config, "");
  const auto tokenizer = load_tokenizer(folder);
  check_pretrained(folder, architecture, config, tokenizer->size());
  auto metadata = tokenizer_metadata(*tokenizer);
  metadata[kBaseSettings] = base_settings_state(folder, nullptr);
  if (const auto chat = read_chat_template(folder))
    metadata[kChatTemplate] = chat_template_state(*chat);
  auto bundle = ModelBundle::untrained(std::move(config), std::move(metadata));
  load_pretrained(folder, *architecture.huggingface_layout(), bundle.weights);
  return bundle;
}

ModelBundle open_bert_folder(const std::string& folder) {
  const PretrainedBert there = read_pretrained_bert(folder);
  if (!there.unsupported.empty()) {
    throw UserError(
        fmt::format("{}: does not fit: {}", folder, fmt::join(there.unsupported, "; ")));
  }
  Config config;
  config.task = there.labels.empty() ? TaskKind::kMaskedLm : TaskKind::kTextClassification;
  config.data.block_size = there.positions;
  config.bert = there.shape;
  const auto tokenizer = load_tokenizer(folder);
  const auto& layout = there.labels.empty() ? kBertLayout : kBertClassifierLayout;
  check_pretrained(folder, layout,
                   bert_parameter_shapes(config.bert, {tokenizer->size(), there.positions,
                                                       std::ssize(there.labels)}));
  std::map<std::string, std::string> metadata = {
      {kTokenizerState, tokenizer->state()}, {kBaseSettings, base_settings_state(folder, nullptr)}};
  if (!there.labels.empty()) metadata[kLabels] = labels_json(there.labels);
  auto bundle = ModelBundle::untrained(std::move(config), std::move(metadata));
  const auto absent = load_pretrained(folder, layout, bundle.weights);
  if (absent.empty()) return bundle;
  throw UserError(fmt::format("{}: {} is missing; give the folder of a trained classifier", folder,
                              absent.front()));
}

ModelBundle open_folder(const std::string& folder) {
  const CausalArchitecture* architecture = architecture_of_folder(folder);
  return architecture == nullptr ? open_bert_folder(folder)
                                 : open_causal_folder(*architecture, folder);
}

/// With the weights that were evaluated.
ModelBundle open_snapshot_model(const std::string& path, const std::string& base) {
  const FetchedSnapshot fetched(path);
  const OpenedSnapshot snapshot = open_snapshot(fetched.file());
  Config config = config_from_json(snapshot.meta.config_json);
  if (trains_causal_lm(config.task)) config.task = TaskKind::kCausalLm;
  if (!base.empty() && config.adapted()) set_model_below(config, absolute_path(base));
  auto bundle = ModelBundle::untrained(std::move(config), snapshot.meta.task);
  for (const auto& each : bundle.weights)
    snapshot.load_into(evaluated_tensor(*snapshot.file, each.name), each.tensor);
  for (const auto& each : bundle.buffers) snapshot.load_into("buffer." + each.name, each.tensor);
  bundle.step = snapshot.meta.step;
  bundle.path = is_remote(path) ? path : snapshot.path;
  return bundle;
}

}  // namespace

ModelBundle open_model(const std::string& path, torch::Device device, const std::string& base) {
  if (const std::string fix = how_to_fetch_model(path); !fix.empty()) throw UserError(fix);
  std::error_code ignored;
  const bool pretrained = std::filesystem::is_directory(path, ignored) && !is_run_folder(path);
  ModelBundle bundle = pretrained ? open_folder(path) : open_snapshot_model(path, base);
  if (pretrained) bundle.path = path;
  bundle.model->eval();
  bundle.model->to(device);
  return bundle;
}

void check_base_is_needed(const Config& config, const std::string& path, const std::string& base) {
  if (base.empty() || config.adapted()) return;
  throw UserError(
      fmt::format("--base: {} is a whole model, not adapters (lora.rank, prompt_tuning) that need "
                  "one; remove it",
                  path));
}

}  // namespace ddp::train
