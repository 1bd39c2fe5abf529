// data_config.sources, mask_documents and eval_sets through training, kills and evaluation.
#include <fstream>

#include "tests/support/catch.h"

#include "tests/e2e/exact_runs.h"

namespace ddp::test {
namespace {

using Catch::Contains;
using Json = nlohmann::json;

std::string many_words(const std::string& pattern, int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += pattern + std::to_string(i * i % 97) + (i % 7 ? " " : "\n");
  return text;
}

/// Three texts, and folders of tokens in which short documents end with the end-of-text token.
struct SourcesPlace : Workspace {
  explicit SourcesPlace(bool in_tokens = false) {
    write("web.txt", many_words("the web ", 400));
    write("code.txt", many_words("int x = ", 120));
    write("wiki.txt", many_words("a fact: ", 90));
    for (int i = 0; i < kDocuments; ++i) write(document(i), many_words("doc ", 3 + i % 11));
    if (in_tokens) tokenize();
  }

  void tokenize() const {
    Words command = {"tokenize", "--tokenizer", "byte",   "--append_end_of_text",
                     "--output", "tokens",      "--input"};
    for (int i = 0; i < kDocuments; ++i) command.push_back(document(i));
    succeed(trainer(*this, command));
  }

  static constexpr int kDocuments = 40;
  static std::string document(int i) { return "doc" + std::to_string(10 + i) + ".txt"; }
};

const Words kMixedSources = {
    "~data_config.path",
    "data_config.sources=[{path: web.txt, weight: 1}, {path: code.txt, weight: 3}]",
    "data_config.tokenizer=byte"};
const Words kFortySteps = {"trainer_config.max_steps=40"};
const Words kNamedSets = {"data_config.eval_sets={wiki: wiki.txt, code: code.txt}",
                          "data_config.path=web.txt", "data_config.tokenizer=byte",
                          "trainer_config.eval_every_steps=5"};

std::vector<Json> evaluations_in(const std::string& file) {
  std::vector<Json> found;
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    Json record = Json::parse(line);
    if (record.value("split", "") == "eval") found.push_back(std::move(record));
  }
  return found;
}

}  // namespace

TEST_CASE("weighted sources resume bit for bit after a kill, and two ranks are one process") {
  check_exact<SourcesPlace>(joined(kMixedSources, kFortySteps), 33);
}

TEST_CASE("documents that do not see each other resume bit for bit, on any number of ranks") {
  const Words masked = {"data_config.path=tokens", "data_config.mask_documents=true"};
  check_exact<SourcesPlace>(joined(masked, kFortySteps), 33, {}, true);
  const SourcesPlace with(true), without(true);
  succeed(alone(with, masked));
  succeed(alone(without, {"data_config.path=tokens"}));
  CHECK(largest_parameter_distance(with.snapshot(), without.snapshot()) > 0.0);
}

TEST_CASE("an epoch takes samples from each source in proportion to its weight") {
  const SourcesPlace place;
  const auto run = succeed(alone(place, joined(kMixedSources, {"trainer_config.max_steps=2"})));
  CHECK_THAT(run.out, Contains("Data: 2 sources, 257 unique"));
  CHECK_THAT(run.out, Contains("web.txt: ") && Contains("weight 1: ") && Contains("weight 3: "));
  const auto changed = succeed(alone(
      place,
      joined(kMixedSources, {"data_config.sources=[{path: web.txt, weight: 2}, {path: code.txt}]",
                             "trainer_config.max_steps=3"})));
  CHECK_THAT(changed.out, Contains("The training data differs from the snapshot's"));
}

TEST_CASE("each named set has its own metrics, equal to those of its text alone") {
  const SourcesPlace place;
  succeed(alone(place, joined(kNamedSets, {"trainer_config.metric_for_best_model=wiki_loss",
                                           "trainer_config.load_best_model_at_end=true"})));
  const auto found = evaluations_in(place / "metrics.jsonl");
  REQUIRE(found.size() >= 4);
  for (const Json& record : found) {
    for (const char* metric :
         {"loss", "wiki_loss", "wiki_perplexity", "code_loss", "code_accuracy"})
      CHECK(record.contains(metric));
  }
  const auto of = [&place](const Words& more) {
    return Json::parse(
        succeed(trainer(place, joined({"eval", "--snapshot", "snapshot.pt", "--json"}, more))).out);
  };
  const Json all = of({});
  CHECK(all.at("wiki_loss") == of({"--data", "wiki.txt"}).at("loss"));
  CHECK(all.at("code_loss") == of({"--data", "code.txt"}).at("loss"));
  CHECK_FALSE(of({"--data", "code.txt"}).contains("wiki_loss"));
}

TEST_CASE("named sets are evaluated by two ranks with the digits of one, and change no weight") {
  const SourcesPlace one, two, none;
  succeed(alone(one, joined(kNamedSets, {"trainer_config.grad_accumulation_steps=2"})));
  succeed(launched(two, 2, kNamedSets));
  succeed(alone(none, joined(kNamedSets, {"data_config.eval_sets=null",
                                          "trainer_config.grad_accumulation_steps=2"})));
  CHECK(differences(one.snapshot(), two.snapshot()) == Words{});
  CHECK(differences(one.snapshot(), none.snapshot()) == Words{});
  const auto of_one = evaluations_in(one / "metrics.jsonl");
  const auto of_two = evaluations_in(two / "metrics.jsonl");
  REQUIRE(of_one.size() == of_two.size());
  for (std::size_t i = 0; i < of_one.size(); ++i)
    CHECK(of_one[i].at("wiki_loss") == of_two[i].at("wiki_loss"));
}

}  // namespace ddp::test
