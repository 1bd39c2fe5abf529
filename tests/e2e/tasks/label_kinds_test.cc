// Text classification whose labels are numbers or several, and whose texts are pairs.
#include <fmt/format.h>
#include <signal.h>

#include <filesystem>

#include "tests/support/catch.h"

#include "tests/e2e/reviews.h"

namespace ddp::test {

using Catch::Contains;

namespace {

/// Reviews and a second text, with a number and with the labels that fit: none, one or two.
std::string as_rated_csv(const std::vector<Review>& reviews) {
  std::string table = "text,second,stars,tags\n";
  for (std::size_t i = 0; i < reviews.size(); ++i) {
    const bool bad = reviews[i].label == "bad";
    const bool quotes = reviews[i].text.find('"') != std::string::npos;
    const std::string tags =
        fmt::format("{}{}{}", bad ? "bad" : "", bad && quotes ? "|" : "", quotes ? "quoted" : "");
    table += fmt::format("{},{},{},{}\n", in_quotes(reviews[i].text),
                         i % 2 == 0 ? "the plot was long" : "so we said",
                         bad          ? "1.5"
                         : i % 2 == 0 ? "4"
                                      : "5",
                         tags);
  }
  return table;
}

struct RatedWorkspace : ReviewWorkspace {
  RatedWorkspace() {
    write("rated.csv", as_rated_csv(some_reviews(90)));
    write("new.csv", as_rated_csv(some_reviews(40)));
  }
};

const Words kPairs = {"data_config.path=rated.csv", "data_config.text_pair_column=second"};
const Words kStars =
    joined(kPairs, {"data_config.label_column=stars", "bert_config.problem_type=regression"});
const Words kTags =
    joined(kPairs, {"data_config.label_column=tags", "data_config.label_separator=|",
                    "bert_config.problem_type=multi_label_classification"});

}  // namespace

TEST_CASE(
    "numbers and several labels of pairs, killed and started again, end as the unbroken run") {
  for (const Words& how : {kStars, kTags}) {
    const RatedWorkspace unbroken, broken;
    const auto whole = succeed(alone(unbroken, how));
    {
      ChildProgram victim(alone(broken, how));
      victim.wait_for("Step 8 | Train", 1, kPatience);
      victim.signal(SIGKILL);
      victim.wait_all_gone(kPatience);
    }
    succeed(alone(broken, how));
    CHECK(differences(unbroken.snapshot(), broken.snapshot()) == Words{});
    CHECK(steps_of(log_of(broken)) == steps_of(whole.out));
  }
}

TEST_CASE("two ranks train and evaluate numbers and several labels as one process") {
  for (const Words& how : {kStars, kTags}) {
    const RatedWorkspace two, one;
    const auto by_two = succeed(launched(two, 2, how));
    const auto by_one =
        succeed(alone(one, joined(how, {"trainer_config.grad_accumulation_steps=2"})));
    CHECK(content_sha256(two) == content_sha256(one));
    REQUIRE(!evaluations_of(by_two.out).empty());
    CHECK(evaluations_of(by_two.out) == evaluations_of(by_one.out));
  }
}

TEST_CASE("the best snapshot by a rank correlation answers with numbers") {
  const RatedWorkspace place;
  const auto run = succeed(alone(
      place,
      joined(kStars, {"trainer_config.max_steps=60", "trainer_config.save_every=1",
                      "trainer_config.save_every_steps=null", "trainer_config.save_total_limit=3",
                      "trainer_config.metric_for_best_model=spearman",
                      "trainer_config.load_best_model_at_end=true"})));
  CHECK_THAT(run.out, Contains("Labels: numbers from 1.5 to 5") && Contains(", spearman 0."));
  const auto report =
      json_of(place, {"eval", "--snapshot", "snapshot.pt", "--data", "new.csv", "--json"});
  CHECK(report["mse"] == report["loss"]);
  CHECK(report["pearson"].get<double>() > 0.5);
  const auto answers = answers_of(place, {"--input", "new.csv"});
  REQUIRE(answers.size() == 40);
  CHECK(answers[0]["value"].is_number());
  CHECK(answers[0]["input"] == some_reviews(1)[0].text + "\tthe plot was long");
  succeed(trainer(place, joined(kPredict, {"--input", "new.csv", "--output", "out.csv"})));
  CHECK_THAT(read_bytes(place / "out.csv"),
             Catch::StartsWith("input,value,error,text,second,stars,tags\n"));
  const auto alone_text = finish(trainer(place, joined(kPredict, {"--text", "the film"})));
  CHECK(alone_text.exit == 2);
  CHECK_THAT(alone_text.err, Contains("--text: the model was trained on pairs; give the second"));
  CHECK(answers_of(place, {"--text", "the film", "--text_pair", "so long"}).size() == 1);
}

TEST_CASE("several labels are shown, predicted and read again as a list") {
  const RatedWorkspace place;
  succeed(alone(place, joined(kTags, {"trainer_config.max_steps=90"})));
  const auto shown = succeed(
      trainer(place, joined({"data", "show", "--config", "config.yaml", "--rows", "8"}, kTags)));
  CHECK_THAT(shown.out, Contains("tokens; labels: none\n") && Contains("tokens; labels: quoted\n"));
  succeed(trainer(place, joined(kPredict, {"--input", "new.csv", "--output", "out.jsonl"})));
  succeed(trainer(place, joined(kPredict, {"--input", "new.csv", "--output", "out.csv"})));
  CHECK_THAT(read_bytes(place / "out.csv"),
             Catch::StartsWith("input,labels,probability of bad,probability of quoted,error,"));
  const auto lines = lines_of(read_bytes(place / "out.jsonl"));
  REQUIRE(lines.size() == 40);
  CHECK(Json::parse(lines[0])["labels"].is_array());
  for (const char* answers : {"out.jsonl", "out.csv"}) {
    const auto again = succeed(
        alone(place, joined(kTags, {std::string("data_config.path=") + answers,
                                    "data_config.label_column=labels", "trainer_config.max_steps=1",
                                    "trainer_config.snapshot_path=again.pt"})));
    CHECK_THAT(again.out, Contains("Labels: "));
    std::filesystem::remove(place / "again.pt");
  }
  const auto report =
      json_of(place, {"eval", "--snapshot", "snapshot.pt", "--data", "new.csv", "--json"});
  for (const char* name : {"exact_match", "f1_micro", "f1_macro", "f1/bad", "f1/quoted"})
    CHECK(report[name].is_number());
}

}  // namespace ddp::test
