// A table of film reviews to train a classifier on, and what tests ask of it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/catch.h"

#include "tests/e2e/saved_state.h"

namespace ddp::test {

using Json = nlohmann::json;

inline constexpr const char* kReviewConfig = R"(task: text_classification
data_config:
  path: reviews.csv
  tokenizer: vocab.txt
  block_size: 24
  train_split: 0.8
bert_config: {n_layer: 2, n_head: 2, n_embd: 32, intermediate: 48}
)";

inline constexpr const char* kReviewVocabulary =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nfilm\nplot\ncast\nwas\nwere\nand\nso\ngreat\nlovely\n"
    "funny\ndull\nslow\npoor\nwe\nsaid\nlong\n,\n.\n\"\n##s\n";

struct Review {
  std::string text;
  std::string label;
};

/// Two thirds are good; of unequal lengths, some with commas, quotes and line ends.
inline std::vector<Review> some_reviews(int count) {
  constexpr const char* kWords[][3] = {{"great", "lovely", "funny"}, {"dull", "slow", "poor"}};
  std::vector<Review> reviews;
  for (int i = 0; i < count; ++i) {
    const int bad = i % 3 == 2 ? 1 : 0;
    const std::string word = kWords[bad][(i * i + i / 7) % 3];
    std::string text =
        i % 2 == 0 ? "the film was " + word : "we said \"" + word + "\",\nso " + word;
    for (int more = 0; more < i % 5; ++more) text += ", and the cast was so " + word;
    reviews.push_back({text + ".", bad == 1 ? "bad" : "good"});
  }
  return reviews;
}

inline std::string in_quotes(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

inline std::string as_csv(const std::vector<Review>& reviews, const std::string& separator = ",") {
  std::string table = "label" + separator + "text\n";
  for (const auto& [text, label] : reviews) table += label + separator + in_quotes(text) + "\n";
  return table;
}

inline std::string as_json_lines(const std::vector<Review>& reviews) {
  std::string lines;
  for (const auto& [text, label] : reviews)
    lines += Json({{"text", text}, {"label", label}}).dump() + "\n";
  return lines;
}

struct ReviewWorkspace : Workspace {
  ReviewWorkspace() {
    write("config.yaml", tiny_config(kReviewConfig, 14, 4));
    write("vocab.txt", kReviewVocabulary);
    write("reviews.csv", as_csv(some_reviews(90)));
    write("others.csv", as_csv(some_reviews(40)));
  }
};

inline const Words kBucketsAndWeights = {"data_config.bucket_batches=3",
                                         "bert_config.class_weights=balanced"};

inline const Words kPredict = {"predict", "--snapshot", "snapshot.pt"};

inline Json json_of(const Workspace& place, const Words& words) {
  return Json::parse(succeed(trainer(place, words)).out);
}

inline Json answers_of(const Workspace& place, const Words& input) {
  return json_of(place, joined(joined(kPredict, input), {"--json"}))["predictions"];
}

}  // namespace ddp::test
