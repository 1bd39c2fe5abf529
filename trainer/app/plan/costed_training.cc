#include "trainer/app/plan/costed_training.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "trainer/app/load_run.h"
#include "trainer/config/add_tokens.h"
#include "trainer/model/causal_architecture.h"
#include "trainer/runtime/error.h"
#include "trainer/task/causal_cost.h"
#include "trainer/task/task.h"
#include "trainer/tokenizer/byte_tokenizer.h"
#include "trainer/tokenizer/tokenizer_folder.h"
#include "trainer/tokenizer/with_added_tokens.h"

namespace ddp::train {
namespace {

struct Vocabulary {
  int64_t size = 0;  ///< 0: unknown.
  std::string source;
};

Vocabulary vocabulary_of(const Config& config, std::optional<int64_t> given) {
  if (given) return {*given, "--vocab_size"};
  const CausalArchitecture& architecture = causal_architecture(config);
  if (config.data.tokenizer == "byte") return {ByteTokenizer().size(), "data_config.tokenizer"};
  for (const auto& folder : {config.data.tokenizer, architecture.pretrained(config)})
    if (holds_tokenizer(folder))
      return {with_added_tokens(load_tokenizer(folder), add_tokens(config))->size(), folder};
  if (!config.data.tokenizer.empty() || !architecture.pretrained(config).empty()) return {};
  return {architecture.published_vocabulary(config), "published with the model"};
}

bool lacks_data(const Config& config) {
  std::error_code ignored;
  return config.data.sources.empty() && !std::filesystem::exists(config.data.path, ignored) &&
         config.data.path.find_first_of("*?[") == std::string::npos;
}

/// Throws UserError if the data are not there. With them the configuration is the same.
void check_data(const TrainerArgs& args, bool causal) {
  try {
    load_config(args.config, args.overrides);
  } catch (const UserError& error) {
    if (!causal) throw;
    throw UserError(fmt::format("{}, or give --vocab_size N instead of the data", error.what()));
  }
}

}  // namespace

CostedTraining costed_training(const TrainerArgs& args) {
  CostedTraining result;
  result.config = load_run(args.config, args.overrides, std::nullopt, DataFiles::kUnchecked).config;
  const bool causal = trains_causal_lm(result.config.task);
  if (args.vocab_size && !causal)
    throw UserError(
        "--vocab_size: is for task=causal_lm and task=preference; leave it out, and give the data");
  Vocabulary vocabulary;
  if (args.vocab_size || (causal && lacks_data(result.config)))
    vocabulary = vocabulary_of(result.config, args.vocab_size);
  if (vocabulary.size == 0) check_data(args, causal);
  Config of_cost = result.config;
  of_cost.trainer.batch_size = 1;  // data that are too few for training can be estimated
  result.of_cost = std::make_unique<const Config>(std::move(of_cost));
  if (vocabulary.size == 0) {
    auto task = make_task(*result.of_cost, nullptr);
    result.samples = task->training().size();
    result.cost = std::move(task);
    return result;
  }
  result.cost = std::make_unique<CausalCost>(*result.of_cost, vocabulary.size);
  result.note =
      fmt::format("{} tokens ({}), as the data were not read", vocabulary.size, vocabulary.source);
  return result;
}

}  // namespace ddp::train
