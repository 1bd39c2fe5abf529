#include "trainer/task/masked_lm.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainer/config/config.h"
#include "trainer/data/data_loader.h"
#include "trainer/data/data_source.h"
#include "trainer/data/text/documents.h"
#include "trainer/interop/pretrained_weights.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/with_key.h"
#include "trainer/tokenizer/char_tokenizer.h"
#include "trainer/tokenizer/wordpiece/wordpiece_tokenizer.h"

namespace ddp::train {
namespace {

torch::Tensor hidden_loss_sum(const torch::Tensor& logits_MV, const torch::Tensor& targets_M,
                              double smoothing = 0.0) {
  return at::cross_entropy_loss(logits_MV.to(torch::kFloat32), targets_M, {}, at::Reduction::Sum,
                                /*ignore_index=*/-100, smoothing);
}

}  // namespace

MaskingTokens masking_tokens(const Tokenizer& tokenizer) {
  const BertTokenNames& names = token_names_of(tokenizer);
  MaskingTokens tokens{bert_tokens(tokenizer), required_token(tokenizer, names.mask), {}};
  const auto unknown = tokenizer.token_of(names.unknown);
  for (int32_t id = 0; id < tokenizer.size(); ++id) {
    const bool special = id == tokens.pad || id == tokens.first || id == tokens.last ||
                         id == tokens.mask || id == unknown;
    if (!special) tokens.ordinary.push_back(id);
  }
  if (tokens.ordinary.empty()) throw UserError("the vocabulary has no token to predict");
  return tokens;
}

MaskedLm::MaskedLm(const Config& config, const std::map<std::string, std::string>* metadata)
    : BertTask(config, metadata), left_out_(config.data.on_bad_sample) {
  if (metadata == nullptr) check_row_keys(config.data);
  if (!tokenizer_) {
    throw UserError(fmt::format(
        "data_config.tokenizer: {} needs BERT's vocabulary; name a folder with tokenizer.json or "
        "vocab.txt, or train one: trainer tokenize --tokenizer wordpiece --train --vocab_size 8000 "
        "--input FILE --output FOLDER",
        task_name(config.task)));
  }
  tokens_ = with_key("data_config.tokenizer", [this] { return masking_tokens(*tokenizer_); });
  check_padding(tokens_.pad);
  open_training();
  if (!config.data.eval_path.empty())
    evaluation_ = open_part("data_config.eval_path", config.data.eval_path);
  if (!config.data.test_path.empty())
    test_ = open_part("data_config.test_path", config.data.test_path);
}

MaskingOptions MaskedLm::masking(bool every_epoch_anew) const {
  // Evaluations hide the same tokens whatever the run's seed is.
  const auto seed = every_epoch_anew ? static_cast<uint64_t>(config_.trainer.seed) : 0;
  return {config_.data.block_size, config_.data.mask_share, seed, every_epoch_anew};
}

std::unique_ptr<TextLines> MaskedLm::read_lines(const char* key, const std::string& path,
                                                double share) {
  const DataConfig& data = config_.data;
  const int64_t most = data.block_size - kAroundText;
  const auto files = find_documents(path);
  if (files.empty()) {
    const std::string text = read_plain_text(key, path);
    return std::make_unique<TextLines>(*tokenizer_, truncate_text(text, share), data.min_characters,
                                       most);
  }
  return with_key(key, [&] {
    Documents documents(files, {data.text_column, ""}, left_out_);
    return std::make_unique<TextLines>(*tokenizer_, documents, data.min_characters, most);
  });
}

MaskedLm::Part MaskedLm::open_part(const char* key, const std::string& path) {
  Part part;
  part.lines = read_lines(key, path);
  if (part.lines->size() == 0) {
    throw UserError(fmt::format("{}: {}: none of its {} lines has {} characters and a token{}", key,
                                path, part.lines->lines_in_text(),
                                std::max<int64_t>(1, config_.data.min_characters),
                                left_out_note()));
  }
  part.samples = std::make_unique<MaskedLines>(*part.lines, 0, part.lines->size(), tokens_,
                                               masking(/*every_epoch_anew=*/false));
  return part;
}

void MaskedLm::open_training() {
  const DataConfig& data = config_.data;
  lines_ = read_lines("data_config.path", data.path, data.truncate);
  const bool of_rows = !find_documents(data.path).empty();
  const double used = static_cast<double>(lines_->size()) * data.truncate;
  const int64_t all = of_rows ? static_cast<int64_t>(used) : lines_->size();
  const double split = static_cast<double>(all) * data.train_split;
  const int64_t last = data.eval_path.empty() ? static_cast<int64_t>(split) : all;
  // A train_split of 0, which no configuration can have, leaves all for evaluation.
  if (last < config_.trainer.batch_size && data.train_split > 0.0) refuse_lines();
  training_ =
      std::make_unique<MaskedLines>(*lines_, 0, last, tokens_, masking(/*every_epoch_anew=*/true));
  if (last == all) return;
  evaluation_.samples = std::make_unique<MaskedLines>(*lines_, last, all, tokens_,
                                                      masking(/*every_epoch_anew=*/false));
}

void MaskedLm::refuse_lines() const {
  const DataConfig& data = config_.data;
  throw UserError(fmt::format(
      "data_config.path: {}: {} of its {} lines have {} characters (truncate {}), too few for "
      "training with trainer_config.batch_size {} (train_split {}); use a longer text, or lower "
      "batch_size or data_config.min_characters{}",
      data.path, lines_->size(), lines_->lines_in_text(), data.min_characters, data.truncate,
      config_.trainer.batch_size, data.train_split, left_out_note()));
}

std::string MaskedLm::left_out_note() const {
  return left_out_.count() == 0 ? "" : "; " + left_out_.text();
}

const SampleSource* MaskedLm::source_of(const Part& part) { return part.samples.get(); }

void MaskedLm::build_model(torch::Device device, std::optional<uint64_t> seed) {
  if (fresh_ && !config_.bert.init_from.empty())
    check_pretrained(config_.bert.init_from, kBertLayout,
                     bert_parameter_shapes(config_.bert, sizes()));
  model_ =
      BertForMaskedLm(config_.bert, tokenizer_->size(), config_.data.block_size, seed.value_or(0));
  if (fresh_ && !config_.bert.init_from.empty() && !config_.lora.enabled()) {  // else adapt() does
    load_pretrained(config_.bert.init_from, kBertLayout, named_tensors(model_->model_parameters()));
  }
  adapt(*model_, seed);
  model_->to(device);
  model_->train();
}

torch::Tensor MaskedLm::hidden_logits(const Batch& batch) {
  return model_->logits_at(batch[kInputs], batch[kAttentionMask], batch[kTargetPositions]);
}

torch::Tensor MaskedLm::loss(const Batch& batch) {
  const auto sum =
      hidden_loss_sum(hidden_logits(batch), batch[kTargets], config_.trainer.label_smoothing);
  return sum / static_cast<double>(std::max<int64_t>(1, batch.target_count));
}

torch::Tensor MaskedLm::smallest_loss() {
  const auto device = model_->parameters().front().device();
  const auto options = torch::TensorOptions(torch::kInt64).device(device);
  const auto tokens_BT = torch::full({1, 2}, tokens_.mask, options);
  const auto all_BT = torch::ones({1, 2}, options.dtype(torch::kBool));
  const auto both_M = torch::arange(2, options);
  return hidden_loss_sum(model_->logits_at(tokens_BT, all_BT, both_M), tokens_BT.reshape({-1}));
}

BatchSums MaskedLm::evaluate(const Batch& batch) {
  const torch::Tensor& targets_M = batch[kTargets];
  const auto logits_MV = hidden_logits(batch);
  const auto right = logits_MV.argmax(-1).eq(targets_M).sum().to(torch::kFloat32);
  const auto count = torch::full_like(right, batch.target_count);
  return {torch::stack({hidden_loss_sum(logits_MV, targets_M), right, count}), {}};
}

Metrics MaskedLm::metrics(const std::vector<double>& sums) const {
  const double count = std::max(1.0, sums[2]);
  return {
      {"loss", sums[0] / count}, {"masked_accuracy", sums[1] / count}, {"masked_tokens", sums[2]}};
}

std::vector<std::string> MaskedLm::metric_names() const {
  return {"loss", "masked_accuracy", "masked_tokens"};
}

BertSizes MaskedLm::sizes() const {
  BertSizes sizes = bert_sizes(*lines_, config_.data.block_size, tokenizer_->size());
  sizes.hidden_share = config_.data.mask_share;
  return sizes;
}

/// What always guessing the most frequent token would be right about.
double MaskedLm::share_of_most_frequent(const MaskedLines& samples) const {
  constexpr int64_t kLinesAtATime = 64;
  std::map<int64_t, int64_t> counts;
  int64_t all = 0;
  for (int64_t first = 0; first < samples.size(); first += kLinesAtATime) {
    const Batch batch = batch_of(samples, first, std::min(kLinesAtATime, samples.size() - first));
    const auto* targets = batch[kTargets].const_data_ptr<int64_t>();
    for (int64_t i = 0; i < batch.target_count; ++i) ++counts[targets[i]];
    all += batch.target_count;
  }
  int64_t most = 0;
  for (const auto& [token, count] : counts) most = std::max(most, count);
  return static_cast<double>(most) / static_cast<double>(std::max<int64_t>(1, all));
}

std::vector<std::string> MaskedLm::describe() const {
  std::vector<std::string> lines = describe_model(*model_);
  for (std::string& line : describe_data()) lines.push_back(std::move(line));
  return lines;
}

std::vector<std::string> MaskedLm::describe_data() const {
  const auto lines_in = [](const Part& part) { return part.samples ? part.samples->size() : 0; };
  std::vector<std::string> lines = {fmt::format(
      "Data: {}: {} of {} lines, {} tokens, {} in the vocabulary; lines for training {}, "
      "evaluation {}, test {}",
      config_.data.path, lines_->size(), lines_->lines_in_text(), lines_->tokens(),
      tokenizer_->size(), training_->size(), lines_in(evaluation_), lines_in(test_))};
  if (left_out_.count() > 0) lines.push_back("Left out: " + left_out_.text());
  if (evaluation_.samples) {
    lines.push_back(fmt::format(
        "Guessing: the most frequent token everywhere would be right about {:.4f} of the "
        "hidden tokens of the evaluation",
        share_of_most_frequent(*evaluation_.samples)));
  }
  return lines;
}

}  // namespace ddp::train
