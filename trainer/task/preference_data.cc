// Pairs of answers as the data of a language model.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "trainer/data/chat/chat_encoding.h"
#include "trainer/data/chat/preference_samples.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/with_key.h"
#include "trainer/task/causal_data.h"

namespace ddp::train {
namespace {

constexpr const char* kPairsKey = "data_config.path";

std::string losses_of_pairs(const PairCounts& counts, int64_t block_size) {
  std::string text;
  if (counts.truncated > 0)
    text += fmt::format(
        "; {} answers truncated to data_config.block_size + 1 = {} tokens ({} tokens cut)",
        counts.truncated, block_size + 1, counts.cut_tokens);
  if (counts.without_answer > 0)
    text += fmt::format(
        "; {} left out: the prompt alone has data_config.block_size + 1 = {} "
        "tokens or more",
        counts.without_answer, block_size + 1);
  return text;
}

class PreferenceData : public CausalData {
 public:
  PreferenceData(const Config& config, const SnapshotMetadata* snapshot)
      : config_(config),
        tools_(open_chat_tools(config, snapshot)),
        left_out_(config.data.on_bad_sample) {
    if (tools_.text) chat_.emplace(parse_chat_template(*tools_.text, tools_.now));
    const DataConfig& data = config.data;
    std::vector<EncodedPair> all = read(data.path, kPairsKey);
    const auto parts = leading_parts(data, all.size());
    const auto begin = all.begin();
    const auto at = [&](std::size_t pair) { return begin + static_cast<std::ptrdiff_t>(pair); };
    training_ = samples({begin, at(parts.training)});
    evaluation_ = samples(data.eval_path.empty() ? Pairs(at(parts.training), at(parts.used))
                                                 : read(data.eval_path, "data_config.eval_path"));
    check();
  }

  const Tokenizer& tokenizer() const override { return *tools_.tokenizer; }
  const SampleSource& training() const override { return *training_; }
  const SampleSource& evaluation() const override { return *evaluation_; }
  std::shared_ptr<const SampleSource> open_whole(const std::string& path,
                                                 const std::string& key) const override {
    auto whole = samples(read(path, key));
    require_pairs(*whole, path, key);
    return whole;
  }
  std::vector<int32_t> sample_prompt(const std::string& text) const override;
  std::optional<int32_t> sample_end() const override {
    return talks() ? encoder().end_of_turn() : tokenizer().end_of_text();
  }
  std::vector<std::string> describe() const override;
  LengthCounts lengths() const override { return training_->counts().lengths; }
  SnapshotMetadata metadata() const override {
    return chat_ ? chat_time_metadata(*chat_) : SnapshotMetadata();
  }
  std::string prompt_options() const override { return talks() ? "--chat" : "--prompt TEXT"; }

 private:
  using Pairs = std::vector<EncodedPair>;

  bool talks() const { return conversations_ > 0; }
  ChatEncoder encoder() const { return {*chat_, tokenizer()}; }
  Pairs read(const std::string& path, const std::string& key) const {
    EncodedPairs there = with_key(
        key, [&] { return read_pairs(path, tokenizer(), chat_ ? &*chat_ : nullptr, left_out_); });
    conversations_ += there.conversations;
    return std::move(there.pairs);
  }
  std::shared_ptr<PairSamples> samples(Pairs pairs) const {
    return std::make_shared<PairSamples>(
        std::move(pairs), config_.data.block_size,
        /*with_prompts=*/config_.preference.loss_type == PreferenceLoss::kOrpo);
  }
  void require_pairs(const PairSamples& samples, const std::string& path,
                     const std::string& key) const;
  void check() const;
  std::string describe_pairs(const char* name, const std::string& path,
                             const PairSamples& samples) const;

  const Config& config_;
  ChatTools tools_;
  std::optional<ChatTemplate> chat_;
  mutable LeftOut left_out_;
  mutable int64_t conversations_ = 0;  // among all pairs read so far
  std::shared_ptr<PairSamples> training_, evaluation_;
};

void PreferenceData::require_pairs(const PairSamples& samples, const std::string& path,
                                   const std::string& key) const {
  if (samples.size() > 0) return;
  throw UserError(fmt::format("{}: {}: no pair is left{}; raise data_config.block_size", key, path,
                              losses_of_pairs(samples.counts(), config_.data.block_size)));
}

void PreferenceData::check() const {
  const DataConfig& data = config_.data;
  if (data.train_split <= 0.0) return require_pairs(*evaluation_, data.path, kPairsKey);
  if (!data.eval_path.empty()) require_pairs(*evaluation_, data.eval_path, "data_config.eval_path");
  if (training_->size() >= config_.trainer.batch_size) return;
  throw UserError(fmt::format(
      "{}: {}: {} training pairs are fewer than trainer_config.batch_size={}{}; reduce it or add "
      "pairs",
      kPairsKey, data.path, training_->size(), config_.trainer.batch_size,
      losses_of_pairs(training_->counts(), data.block_size)));
}

std::vector<int32_t> PreferenceData::sample_prompt(const std::string& text) const {
  if (!text.empty() && talks()) return encoder().encode_prompt({{"user", text}});
  if (text.empty()) {
    const auto& pair = (evaluation_->size() > 0 ? *evaluation_ : *training_).pairs().front();
    const auto end = std::max<std::size_t>(1, pair.prompt);
    return {pair.chosen.begin(), pair.chosen.begin() + static_cast<std::ptrdiff_t>(end)};
  }
  auto tokens = tokenizer().beginning();
  for (const int32_t token : tokenizer().encode(text)) tokens.push_back(token);
  return tokens;
}

std::string PreferenceData::describe_pairs(const char* name, const std::string& path,
                                           const PairSamples& samples) const {
  const LengthCounts& lengths = samples.counts().lengths;
  return fmt::format("{}: {}: {} pairs; prompt and answer have {} tokens on average, at most {}{}",
                     name, path, samples.size(),
                     lengths.sum() / std::max<int64_t>(1, lengths.count()), lengths.longest(),
                     losses_of_pairs(samples.counts(), config_.data.block_size));
}

std::vector<std::string> PreferenceData::describe() const {
  const DataConfig& data = config_.data;
  std::vector<std::string> lines = {describe_pairs("Data", data.path, *training_)};
  if (evaluation_->counts().pairs > 0)
    lines.push_back(describe_pairs(
        "Evaluation", data.eval_path.empty() ? data.path : data.eval_path, *evaluation_));
  if (left_out_.count() > 0) lines.push_back("Left out: " + left_out_.text("pair"));
  lines.push_back(fmt::format("Pairs: {}; {} unique tokens",
                              talks() ? "of conversations" : "of texts", tokenizer().size()));
  return lines;
}

}  // namespace

std::unique_ptr<CausalData> open_preference_data(const Config& config,
                                                 const SnapshotMetadata* snapshot) {
  return std::make_unique<PreferenceData>(config, snapshot);
}

}  // namespace ddp::train
