// trainer data show: what training reads, before it trains.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "launcher/worker_contract.h"
#include "trainer/app/load_run.h"
#include "trainer/app/modes.h"
#include "trainer/app/standard_output.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/log/message.h"
#include "trainer/task/bert_task.h"
#include "trainer/task/causal_lm.h"
#include "trainer/task/class_labels.h"
#include "trainer/task/task.h"

namespace ddp::train {
namespace {

struct SampleToken {
  int64_t id = 0;
  bool counts = false;  ///< In the loss.
  int64_t hidden = -1;  ///< What is to be predicted in its place; -1: nothing.
};
using SampleTokens = std::vector<SampleToken>;

/// The only row of a batch, as numbers.
std::span<const int64_t> row_of(const torch::Tensor& tensor_1T) {
  return {tensor_1T.const_data_ptr<int64_t>(), static_cast<std::size_t>(tensor_1T.size(1))};
}

/// The texts of a row of a language model: a window, or packed conversations. The token that a
/// position predicts follows it.
std::vector<SampleTokens> causal_texts(const Batch& batch, bool packed) {
  const auto inputs = row_of(batch[kInputs]), targets = row_of(batch[kTargets]);
  const torch::Tensor positions_1T = batch.find(kPositions);
  std::vector<SampleTokens> texts(1);
  for (std::size_t t = 0; t < inputs.size(); ++t) {
    const bool begins = packed && row_of(positions_1T)[t] == 0;
    const bool counts = t > 0 && !begins && targets[t - 1] >= 0;
    if (begins && t > 0) {
      if (targets[t - 1] >= 0) texts.back().push_back({targets[t - 1], true});
      texts.emplace_back();
    }
    texts.back().push_back({inputs[t], counts});
  }
  if (targets.back() >= 0) texts.back().push_back({targets.back(), true});
  const auto is_padding = [](const SampleToken& token) { return token.id == 0 && !token.counts; };
  if (packed && std::all_of(texts.back().begin(), texts.back().end(), is_padding)) texts.pop_back();
  return texts;
}

/// A pair: the chosen answer and the rejected one, each after its prompt.
std::vector<SampleTokens> pair_texts(const Batch& batch) {
  const auto& inputs_2T = batch[kInputs];
  const auto length = static_cast<std::size_t>(inputs_2T.size(1));
  const auto* const inputs = inputs_2T.const_data_ptr<int64_t>();
  const auto* const targets = batch[kTargets].const_data_ptr<int64_t>();
  const auto* const positions = batch[kTargetPositions].const_data_ptr<int64_t>();
  std::vector<SampleTokens> texts(2);
  for (int64_t i = 0; i < batch[kTargets].size(0); ++i) {
    const auto row = static_cast<std::size_t>(positions[i]) / length;
    const auto at = static_cast<std::size_t>(positions[i]) % length;
    SampleTokens& text = texts[row];
    while (text.size() <= at) text.push_back({inputs[row * length + text.size()]});
    text.push_back({targets[i], true});
  }
  return texts;
}

SampleTokens bert_text(const Batch& batch) {
  const auto inputs = row_of(batch[kInputs]);
  const bool* seen = batch[kAttentionMask].const_data_ptr<bool>();
  SampleTokens tokens;
  for (std::size_t t = 0; t < inputs.size(); ++t)
    if (seen[t]) tokens.push_back({inputs[t]});
  const torch::Tensor positions_M = batch.find(kTargetPositions);
  if (!positions_M.defined()) return tokens;
  const auto* targets = batch[kTargets].const_data_ptr<int64_t>();
  for (int64_t i = 0; i < positions_M.size(0); ++i) {
    SampleToken& token = tokens[static_cast<std::size_t>(positions_M.const_data_ptr<int64_t>()[i])];
    token.counts = true;
    token.hidden = targets[i];
  }
  return tokens;
}

/// Texts with marks for what counts in the loss.
class MarkedText {
 public:
  explicit MarkedText(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
    const char* no_color = std::getenv("NO_COLOR");
    const bool color = ::isatty(STDOUT_FILENO) == 1 && (no_color == nullptr || *no_color == '\0');
    begin_ = color ? "\033[32m" : "[[";
    end_ = color ? "\033[0m" : "]]";
  }

  /// The text, and below it the numbers of its tokens.
  std::string of(const SampleTokens& tokens) const {
    std::string text, ids;
    for (std::size_t first = 0; first < tokens.size();) {
      const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(first);
      const auto end = std::find_if(begin, tokens.end(), [&](const SampleToken& each) {
        return each.counts != begin->counts;
      });
      std::string part, numbers;
      for (auto token = begin; token != end; ++token) {
        const std::string piece = text_of(token->id);
        const bool is_word = tokenizer_.kind() == "wordpiece" && !piece.starts_with("##");
        if (is_word && token != tokens.begin()) (part.empty() ? text : part) += ' ';
        part += piece;
        numbers += fmt::format("{}{}", token == begin ? "" : " ", token->id);
        if (token->hidden >= 0) part += fmt::format("={}", text_of(token->hidden));
        if (token->hidden >= 0) numbers += fmt::format("={}", token->hidden);
      }
      part = without_controls(part);
      text += begin->counts ? begin_ + part + end_ : part;
      ids += (ids.empty() ? "" : " ") + (begin->counts ? begin_ + numbers + end_ : numbers);
      first = static_cast<std::size_t>(end - tokens.begin());
    }
    return fmt::format("{}\nTokens: {}\n", text, ids);
  }

 private:
  std::string text_of(int64_t id) const { return tokenizer_.decode(static_cast<int32_t>(id)); }

  const Tokenizer& tokenizer_;
  std::string begin_, end_;
};

std::string counted_in_loss(const SampleTokens& tokens) {
  const auto count = std::count_if(tokens.begin(), tokens.end(),
                                   [](const SampleToken& token) { return token.counts; });
  return fmt::format("{} tokens, {} in the loss", tokens.size(), count);
}

/// The label of a text, as a classifier is to answer it.
std::string label_text(const torch::Tensor& target, const Labels& labels, const Config& config) {
  if (config.bert.problem_type == ProblemType::kRegression)
    return fmt::format("label: {}", target.const_data_ptr<float>()[0]);
  if (config.bert.problem_type == ProblemType::kSingleLabel) {
    const int64_t label = target.const_data_ptr<int64_t>()[0];
    return fmt::format("label: {} ({})", without_controls(labels[static_cast<std::size_t>(label)]),
                       label);
  }
  Labels chosen;
  for (std::size_t k = 0; k < labels.size(); ++k)
    if (target.const_data_ptr<float>()[k] == 1.0F) chosen.push_back(without_controls(labels[k]));
  return fmt::format("labels: {}",
                     chosen.empty() ? "none" : fmt::format("{}", fmt::join(chosen, ", ")));
}

std::string sample_text(const Task& task, const Config& config, int64_t sample,
                        const MarkedText& marked) {
  std::string text = fmt::format("--- Sample {} of {}", sample + 1, task.training().size());
  const std::vector<int64_t> samples = {sample};
  const Batch batch = task.training().collate({samples, 0, false});
  if (config.task == TaskKind::kPreference) {
    const auto texts = pair_texts(batch);
    for (std::size_t i = 0; i < texts.size(); ++i)
      text += fmt::format("\n--- {}: {}\n{}", i == 0 ? "chosen" : "rejected",
                          counted_in_loss(texts[i]), marked.of(texts[i]));
    return text;
  }
  if (config.task == TaskKind::kCausalLm) {
    const bool packed = config.data.format == DataFormat::kChat;
    const auto texts = causal_texts(batch, packed);
    if (packed) text += fmt::format(": {} conversations", texts.size());
    for (const SampleTokens& each : texts)
      text += fmt::format("\n--- {}\n{}", counted_in_loss(each), marked.of(each));
    return text;
  }
  const SampleTokens tokens = bert_text(batch);
  if (config.task == TaskKind::kTextClassification)
    text += fmt::format(": {} tokens; {}", tokens.size(),
                        label_text(batch[kTargets], labels_of(task.metadata()), config));
  else
    text += fmt::format(": {}", counted_in_loss(tokens));
  return text + "\n" + marked.of(tokens);
}

std::string histogram(const LengthCounts& lengths, int64_t block_size) {
  if (lengths.count() == 0)
    return fmt::format(
        "Lengths: each sample is data_config.block_size + 1 = {} tokens of the text\n",
        block_size + 1);
  std::string text = fmt::format(
      "Lengths: {} training texts, in tokens: {} on average, at most {}; "
      "data_config.block_size={}\n",
      lengths.count(), lengths.sum() / lengths.count(), lengths.longest(), block_size);
  constexpr int64_t kWidth = 50;
  const int64_t most = *std::max_element(lengths.bins().begin(), lengths.bins().end());
  for (std::size_t bin = 0; bin < LengthCounts::kBins; ++bin) {
    const int64_t count = lengths.bins()[bin];
    if (count == 0) continue;
    const int64_t first = bin == 0 ? 0 : int64_t{1} << (bin - 1);
    const auto width = static_cast<std::size_t>((count * kWidth + most - 1) / most);
    text += fmt::format("{:>8} to {:<8} {:>8}  {}\n", first, (int64_t{1} << bin) - 1, count,
                        std::string(width, '#'));
  }
  return text;
}

}  // namespace

int run_data_show(const TrainerArgs& args) {
  Config config = load_config(args.config, args.overrides);
  if (config.task == TaskKind::kImageClassification)
    throw UserError("trainer data show: is for texts; task=image_classification has images");
  config.trainer.batch_size = 1;  // data that are too few for training can be shown
  const auto task = make_task(config, nullptr);
  const auto tokenizer = trains_causal_lm(config.task) ? tokenizer_of(task->metadata())
                                                       : tokenizer_of_bert(task->metadata());
  const MarkedText marked(*tokenizer);
  const int64_t samples = std::min(args.data_rows, task->training().size());
  for (int64_t i = 0; i < samples; ++i) print(sample_text(*task, config, i, marked));
  print(histogram(task->lengths(), config.data.block_size));
  for (const std::string& line : task->describe_data()) print(line + "\n");
  return launch::kExitDone;
}

}  // namespace ddp::train
