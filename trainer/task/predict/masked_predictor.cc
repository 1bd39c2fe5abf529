// Tokens for the masks of texts: of one, of the lines of a file, or of lines as they come.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "trainer/runtime/error.h"
#include "trainer/task/masked_lm.h"
#include "trainer/task/model_bundle.h"
#include "trainer/task/predict/predictor.h"

namespace ddp::train {
namespace {

/// [CLS] text [SEP], with a mask in it.
std::vector<int64_t> tokens_with_masks(const Tokenizer& tokenizer, const MaskingTokens& special,
                                       std::string_view text, int64_t positions) {
  const auto encoded = tokenizer.encode(text);
  const BertTokenNames& names = token_names_of(tokenizer);
  if (encoded.empty())
    throw UserError(fmt::format("is empty; give a text with {} in it", names.mask));
  if (std::find(encoded.begin(), encoded.end(), special.mask) == encoded.end())
    throw UserError(
        fmt::format("has no {}; write it where a token is to be predicted", names.mask));
  std::vector<int64_t> tokens = {special.first};
  tokens.insert(tokens.end(), encoded.begin(), encoded.end());
  tokens.push_back(special.last);
  if (static_cast<int64_t>(tokens.size()) > positions) {
    throw UserError(fmt::format("has {} tokens with {} and {}, the model takes {}; shorten it",
                                tokens.size(), names.first, names.last, positions));
  }
  return tokens;
}

/// A token and its probability.
using TokenGuesses = std::vector<std::pair<std::string, double>>;

/// For each mask in `text` the `most` likeliest tokens, the likeliest first. Throws UserError
/// without the text: it is empty, lacks a mask, or is longer than the model's positions.
std::vector<TokenGuesses> fill_masks(BertForMaskedLmImpl& model, const Tokenizer& tokenizer,
                                     std::string_view text, int64_t most) {
  const torch::NoGradGuard no_grad;
  const MaskingTokens special = masking_tokens(tokenizer);
  const auto tokens = tokens_with_masks(tokenizer, special, text, model.positions());
  const auto device = model.parameters().front().device();
  const auto tokens_BT = torch::tensor(tokens).unsqueeze(0).to(device);
  const auto masks_M = tokens_BT.eq(special.mask).reshape({-1}).nonzero().view({-1});
  const auto logits_MV = model.logits_at(tokens_BT, {}, masks_M);
  const auto chances_MV = logits_MV.to(torch::kCPU, torch::kFloat64).softmax(-1);
  const auto [chances, ids] = chances_MV.topk(std::min(most, tokenizer.size()), -1);
  std::vector<TokenGuesses> guesses;
  for (int64_t m = 0; m < ids.size(0); ++m) {
    TokenGuesses& here = guesses.emplace_back();
    for (int64_t k = 0; k < ids.size(1); ++k) {
      const auto token = static_cast<int32_t>(ids[m][k].item<int64_t>());
      here.emplace_back(tokenizer.decode(token), chances[m][k].item<double>());
    }
  }
  return guesses;
}

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
