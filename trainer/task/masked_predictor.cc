// Tokens for the masks of texts: of one, of the lines of a file, or of lines as they come.
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "trainer/runtime/error.h"
#include "trainer/task/masked_lm.h"
#include "trainer/task/model_bundle.h"
#include "trainer/task/predictor.h"

namespace ddp::train {
namespace {

/// A text with masks, and how its place is called.
struct MaskedText {
  std::string place;
  std::string text;
};

/// What the request gives, one after the other.
class MaskedTexts {
 public:
  explicit MaskedTexts(const PredictRequest& request)
      : text_(request.text), path_(request.input), next_line_(request.next_line) {
    if (path_.empty()) return;
    errno = 0;
    file_.open(path_, std::ios::binary);
    // A folder can be opened, but not read.
    if (file_) file_.peek();
    if (file_.bad() || !file_.is_open())
      throw UserError(fmt::format("--input: {}: {}", path_, std::strerror(errno)));
  }

  /// The one text of --text, whose faults end the program.
  bool is_single() const { return path_.empty() && !next_line_; }

  std::optional<MaskedText> next() {
    ++line_;
    if (is_single()) {
      if (line_ > 1) return std::nullopt;
      return MaskedText{"--text", text_};
    }
    auto text = next_line_ ? next_line_() : line_of_file();
    if (!text) return std::nullopt;
    const std::string from = next_line_ ? "standard input" : path_;
    return MaskedText{fmt::format("{}: line {}", from, line_), std::move(*text)};
  }

 private:
  std::optional<std::string> line_of_file() {
    std::string line;
    if (!std::getline(file_, line)) return std::nullopt;
    if (line.ends_with('\r')) line.pop_back();
    return line;
  }

  const std::string text_;
  const std::string path_;
  const std::function<std::optional<std::string>()> next_line_;
  std::ifstream file_;
  int64_t line_ = 0;
};

class MaskedPredictor : public Predictor {
 public:
  explicit MaskedPredictor(const PredictRequest& request)
      : texts_(request),
        most_answers_(request.most_answers),
        tokenizer_(*request.model.tokenizer),
        model_(request.model.as<BertForMaskedLmImpl>()) {}

  const std::vector<std::string>& labels() const override { return no_labels_; }

  /// All masks of the next text at once, numbered.
  std::vector<Prediction> next(int64_t /*most*/) override {
    const auto text = texts_.next();
    if (!text) return {};
    try {
      return filled(*text);
    } catch (const UserError& error) {
      if (texts_.is_single()) throw UserError(fmt::format("{}: {}", text->place, error.what()));
      Prediction prediction;
      prediction.input = text->place;
      prediction.problem = error.what();
      return {prediction};
    }
  }

 private:
  std::vector<Prediction> filled(const MaskedText& text) {
    std::vector<Prediction> predictions;
    for (TokenGuesses& guesses : fill_masks(model_, tokenizer_, text.text, most_answers_)) {
      Prediction& here = predictions.emplace_back();
      here.input = fmt::format("mask {}", predictions.size());
      if (!texts_.is_single()) here.input = fmt::format("{}: {}", text.place, here.input);
      here.label = guesses.front().first;
      here.probability = guesses.front().second;
      here.answers = std::move(guesses);
    }
    return predictions;
  }

  MaskedTexts texts_;
  const int64_t most_answers_;
  const std::vector<std::string> no_labels_;
  const Tokenizer& tokenizer_;
  BertForMaskedLmImpl& model_;
};

}  // namespace

std::unique_ptr<Predictor> make_masked_predictor(const PredictRequest& request) {
  return std::make_unique<MaskedPredictor>(request);
}

}  // namespace ddp::train
