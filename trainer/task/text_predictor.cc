// Labels for texts: of a table, one by one, or a single one.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "trainer/data/text/table_file.h"
#include "trainer/runtime/error.h"
#include "trainer/task/bert_task.h"
#include "trainer/task/class_labels.h"
#include "trainer/task/predictor.h"
#include "trainer/task/text_classification.h"

namespace ddp::train {
namespace {

/// A text to be labelled, and how its place is called.
struct PredictedText {
  std::string place;
  std::string text;
  std::vector<TableCell> cells;
};

/// What the request gives, one after the other.
class PredictedTexts {
 public:
  explicit PredictedTexts(const PredictRequest& request)
      : next_line_(request.next_line), file_(request.input) {
    if (!request.text.empty()) rows_ = {{1, request.text, "", {}}};
    if (file_.empty()) return;
    rows_ = read_table("--input", file_, {request.model.config.data.text_column, ""}, &columns_);
  }

  std::optional<PredictedText> next() {
    if (next_line_) {
      auto line = next_line_();
      if (!line) return std::nullopt;
      return PredictedText{fmt::format("standard input: line {}", ++at_), std::move(*line), {}};
    }
    if (at_ == rows_.size()) return std::nullopt;
    TableRow& row = rows_[at_++];
    return PredictedText{
        file_.empty() ? std::string("--text") : fmt::format("{}: line {}", file_, row.line),
        std::move(row.text), std::move(row.cells)};
  }

  const std::vector<std::string>& columns() const { return columns_; }

 private:
  std::function<std::optional<std::string>()> next_line_;
  std::string file_;
  std::vector<std::string> columns_;
  std::vector<TableRow> rows_;
  std::size_t at_ = 0;
};

class TextPredictor : public Predictor {
 public:
  explicit TextPredictor(const PredictRequest& request)
      : device_(request.device),
        texts_(request),
        labels_(request.model.labels),
        tokenizer_(*request.model.tokenizer),
        tokens_(bert_tokens(tokenizer_)),
        model_(request.model.as<BertForSequenceClassificationImpl>()) {}

  const std::vector<std::string>& labels() const override { return labels_; }

  std::vector<std::string> columns() const override { return texts_.columns(); }

  std::vector<Prediction> next(int64_t most) override {
    const torch::NoGradGuard no_grad;
    std::vector<Prediction> predictions;
    std::vector<std::vector<int32_t>> rows;
    for (int64_t i = 0; i < most; ++i) {
      auto text = texts_.next();
      if (!text) break;
      predictions.push_back(read(std::move(*text), rows.emplace_back()));
    }
    if (predictions.empty()) return {};
    const auto count = std::ssize(predictions);
    const Batch batch =
        bert_batch({rows.begin(), rows.end()}, tokens_, /*pinned=*/false).to(device_);
    const auto logits_BK = model_.forward(batch[kInputs], batch[kAttentionMask]);
    const auto probabilities_BK = logits_BK.to(torch::kCPU, torch::kFloat64).softmax(1);
    for (int64_t i = 0; i < count; ++i) {
      Prediction& prediction = predictions[static_cast<std::size_t>(i)];
      if (prediction.problem.empty()) answer_with(prediction, labels_, probabilities_BK[i]);
    }
    return predictions;
  }

 private:
  /// A text that cannot be used has no tokens, and its answer is not shown.
  Prediction read(PredictedText text, std::vector<int32_t>& tokens) const {
    Prediction prediction;
    try {
      tokens = tokenizer_.encode(text.text);
      if (is_blank(text.text)) prediction.problem = "its text is empty";
    } catch (const UserError& error) {
      prediction.problem = error.what();
    }
    prediction.input = std::move(text.text);
    prediction.place = std::move(text.place);
    prediction.cells = std::move(text.cells);
    const auto room = static_cast<std::size_t>(model_.positions() - kAroundText);
    tokens.resize(std::min(tokens.size(), room));
    return prediction;
  }

  const torch::Device device_;
  PredictedTexts texts_;
  const Labels& labels_;
  const Tokenizer& tokenizer_;
  const BertTokens tokens_;
  BertForSequenceClassificationImpl& model_;
};

}  // namespace

std::unique_ptr<Predictor> make_text_predictor(const PredictRequest& request) {
  return std::make_unique<TextPredictor>(request);
}

}  // namespace ddp::train
