// Tokens for the masks of a text.
#include <fmt/format.h>

#include "trainer/runtime/error.h"
#include "trainer/task/masked_lm.h"
#include "trainer/task/predictor.h"

namespace ddp::train {
namespace {

class MaskedPredictor : public Predictor {
 public:
  explicit MaskedPredictor(const PredictRequest& request)
      : text_(request.text),
        most_answers_(request.most_answers),
        tokenizer_(tokenizer_of_bert(request.metadata)),
        model_(request.config.bert, tokenizer_->size(), request.config.data.block_size, 0) {
    request.load(bert_optimizer_parameters(model_->model_parameters()), {});
    model_->eval();
    model_->to(request.device);
  }

  const std::vector<std::string>& labels() const override { return no_labels_; }

  /// All masks of the text at once, numbered.
  std::vector<Prediction> next(int64_t /*most*/) override {
    if (done_) return {};
    done_ = true;
    std::vector<Prediction> predictions;
    for (TokenGuesses& guesses : fill_masks(model_, *tokenizer_, text_, most_answers_)) {
      Prediction& here = predictions.emplace_back();
      here.input = fmt::format("mask {}", predictions.size());
      here.label = guesses.front().first;
      here.probability = guesses.front().second;
      here.answers = std::move(guesses);
    }
    return predictions;
  }

 private:
  const std::string text_;
  const int64_t most_answers_;
  const std::vector<std::string> no_labels_;
  const std::unique_ptr<Tokenizer> tokenizer_;
  BertForMaskedLm model_;
  bool done_ = false;
};

}  // namespace

std::unique_ptr<Predictor> make_masked_predictor(const PredictRequest& request) {
  return std::make_unique<MaskedPredictor>(request);
}

}  // namespace ddp::train
