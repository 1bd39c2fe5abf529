// Labels for texts: of a table, one by one, or a single one.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "trainer/data/text/table_file.h"
#include "trainer/data/text/text_lines.h"
#include "trainer/runtime/error.h"
#include "trainer/task/bert_task.h"
#include "trainer/task/class_labels.h"
#include "trainer/task/label_kind.h"
#include "trainer/task/model_bundle.h"
#include "trainer/task/predict/predictor.h"
#include "trainer/task/text_classification.h"

namespace ddp::train {
namespace {

/// A text to be labelled, and how its place is called.
struct PredictedText {
  std::string place;
  std::string text;
  std::string pair;  ///< The second text; of a line that has none empty.
  std::vector<TableCell> cells;
};

/// What the request gives, one after the other.
class PredictedTexts {
 public:
  explicit PredictedTexts(const PredictRequest& request)
      : next_line_(request.next_line), file_(request.input), pairs_(takes_pairs(request)) {
    const DataConfig& data = request.model.config.data;
    if (!request.text.empty() && pairs_ && request.text_pair.empty())
      throw UserError("--text: the model was trained on pairs; give the second text: --text_pair");
    if (!request.text.empty()) rows_ = {{1, request.text, request.text_pair, "", {}}};
    if (file_.empty()) return;
    TableColumns columns{data.text_column, ""};
    columns.text_pair = data.text_pair_column;
    rows_ = read_table("--input", file_, columns, &columns_);
  }

  static bool takes_pairs(const PredictRequest& request) {
    return !request.text_pair.empty() || !request.model.config.data.text_pair_column.empty();
  }

  std::optional<PredictedText> next() {
    if (next_line_) {
      auto line = next_line_();
      if (!line) return std::nullopt;
      PredictedText text{fmt::format("standard input: line {}", ++at_), std::move(*line), "", {}};
      const std::size_t tab = pairs_ ? text.text.find('\t') : std::string::npos;
      if (tab == std::string::npos) return text;
      text.pair = text.text.substr(tab + 1);
      text.text.resize(tab);
      return text;
    }
    if (at_ == rows_.size()) return std::nullopt;
    TableRow& row = rows_[at_++];
    return PredictedText{
        file_.empty() ? std::string("--text") : fmt::format("{}: line {}", file_, row.line),
        std::move(row.text), std::move(row.text_pair), std::move(row.cells)};
  }

  const std::vector<std::string>& columns() const { return columns_; }
  bool pairs() const { return pairs_; }

 private:
  std::function<std::optional<std::string>()> next_line_;
  std::string file_;
  bool pairs_;
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
        type_(request.model.config.bert.problem_type),
        tokens_(bert_tokens(tokenizer_, request.model.config.bert)),
        model_(request.model.as<BertForSequenceClassificationImpl>()) {}

  const std::vector<std::string>& labels() const override { return labels_; }
  ProblemType problem_type() const override { return type_; }

  std::vector<std::string> columns() const override { return texts_.columns(); }

  std::vector<Prediction> next(int64_t most) override {
    const torch::NoGradGuard no_grad;
    std::vector<Prediction> predictions;
    std::vector<JoinedPair> rows;
    for (int64_t i = 0; i < most; ++i) {
      auto text = texts_.next();
      if (!text) break;
      predictions.push_back(read(std::move(*text), rows.emplace_back()));
    }
    if (predictions.empty()) return {};
    const auto count = std::ssize(predictions);
    std::vector<std::vector<int32_t>> texts;
    std::vector<int64_t> seconds;
    for (JoinedPair& row : rows) {
      texts.push_back(std::move(row.tokens));
      if (texts_.pairs()) seconds.push_back(row.second);
    }
    const Batch batch = bert_batch(texts, tokens_, /*pinned=*/false, seconds).to(device_);
    const auto answers_BK = label_kind(type_).answers(
        model_.forward(batch[kInputs], batch[kAttentionMask], batch.find(kTokenTypes)));
    for (int64_t i = 0; i < count; ++i) {
      Prediction& prediction = predictions[static_cast<std::size_t>(i)];
      if (prediction.problem.empty()) answer(prediction, answers_BK[i]);
    }
    return predictions;
  }

 private:
  void answer(Prediction& prediction, const torch::Tensor& answers_K) const {
    answer_with(prediction, labels_, answers_K);
    if (type_ != ProblemType::kMultiLabel) return;
    for (const auto& [label, probability] : prediction.answers)
      if (is_chosen(probability)) prediction.labels.push_back(label);
  }

  /// A text that cannot be used has no tokens, and its answer is not shown.
  Prediction read(PredictedText text, JoinedPair& row) const {
    Prediction prediction;
    const int64_t room = model_.positions() - kAroundText;
    try {
      auto tokens = tokenizer_.encode(text.text);
      if (texts_.pairs()) {
        row = joined_pair(tokens, tokenizer_.encode(text.pair), between_texts(tokens_), room);
      } else {
        tokens.resize(std::min(tokens.size(), static_cast<std::size_t>(room)));
        row.tokens = std::move(tokens);
      }
      if (is_blank(text.text)) prediction.problem = "its text is empty";
      if (texts_.pairs() && is_blank(text.pair)) prediction.problem = "its second text is empty";
    } catch (const UserError& error) {
      prediction.problem = error.what();
    }
    prediction.input = std::move(text.text);
    if (texts_.pairs()) prediction.input += "\t" + text.pair;
    prediction.place = std::move(text.place);
    prediction.cells = std::move(text.cells);
    return prediction;
  }

  const torch::Device device_;
  PredictedTexts texts_;
  const Labels& labels_;
  const Tokenizer& tokenizer_;
  const ProblemType type_;
  const BertTokens tokens_;
  BertForSequenceClassificationImpl& model_;
};

}  // namespace

std::unique_ptr<Predictor> make_text_predictor(const PredictRequest& request) {
  return std::make_unique<TextPredictor>(request);
}

}  // namespace ddp::train
