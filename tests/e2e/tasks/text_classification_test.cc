// Text classification from tables to snapshots: the invariants of every task, and the mistakes
// that only tables know.
#include <algorithm>
#include <filesystem>
#include <regex>

#include "tests/support/catch.h"

#include "tests/e2e/exact_runs.h"
#include "tests/e2e/reviews.h"

namespace ddp::test {

using Catch::Contains;

TEST_CASE("two ranks, one of them killed, learn labels bit for bit as one process does") {
  check_exact<ReviewWorkspace>(kBucketsAndWeights, 8);
}

TEST_CASE("two ranks, one of them killed, learn labels without buckets or weights, too", "[long]") {
  check_exact<ReviewWorkspace>({}, 8);
}

TEST_CASE("buckets and weights of classes change what is learned") {
  const ReviewWorkspace plain, bucketed, weighted, balanced;
  succeed(alone(plain));
  succeed(alone(bucketed, {kBucketsAndWeights[0]}));
  succeed(alone(weighted, {"bert_config.class_weights=[3, 1]"}));
  succeed(alone(balanced, {kBucketsAndWeights[1]}));
  CHECK(content_sha256(plain) != content_sha256(bucketed));
  CHECK(content_sha256(plain) != content_sha256(weighted));
  CHECK(content_sha256(balanced) != content_sha256(weighted));
}

TEST_CASE("the best snapshot by F1 is kept, and evaluated on a test set at the end") {
  const ReviewWorkspace place;
  const auto run = succeed(alone(
      place, {"trainer_config.max_steps=90", "trainer_config.save_every=1",
              "trainer_config.save_every_steps=null", "trainer_config.save_total_limit=3",
              "trainer_config.metric_for_best_model=f1", "bert_config.hidden_pdrop=0",
              "trainer_config.load_best_model_at_end=true", "data_config.test_path=others.csv"}));
  CHECK_THAT(run.out, Contains("Labels: 2: bad, good") && Contains("texts/s"));
  CHECK_THAT(run.out, Contains("Guessing: the most frequent label would be right about 0.6667"));
  CHECK_THAT(run.out, Contains(" | Test Loss "));
  const auto at = run.out.find("Best snapshot: ");
  REQUIRE(at != std::string::npos);
  const std::regex merit(R"(^Best snapshot: [^(]+\(step \d+, f1 (1\.0|0\.9)\d+, eval loss )");
  CHECK(std::regex_search(run.out.substr(at), merit));
  const std::string best = run.out.substr(at + 15, run.out.find(" (step", at) - at - 15);
  const auto report =
      json_of(place, {"eval", "--snapshot", best, "--data", "others.csv", "--json"});
  CHECK(report["texts"] == 40);
  CHECK(report["f1"].get<double>() > 0.9);
  for (const char* name : {"loss", "accuracy", "precision", "recall", "f1_macro", "f1_micro"})
    CHECK(report[name].is_number());
  const std::string records = read_bytes(place / "metrics.jsonl");
  const auto test = records.rfind(R"("split":"test")");
  REQUIRE(test != std::string::npos);
  const auto first = records.rfind('\n', test) + 1;
  const auto tested = Json::parse(records.substr(first, records.find('\n', test) - first));
  CHECK(tested["f1"] == report["f1"]);
}

TEST_CASE("a new seed on resume leaves the rows of the evaluation where they were") {
  const ReviewWorkspace place;
  succeed(alone(place, {"trainer_config.max_steps=3", "trainer_config.seed=1"}));
  const auto before = succeed(trainer(place, {"eval", "--snapshot", "snapshot.pt", "--json"})).out;
  const Words still = {"trainer_config.seed=2", "optimizer_config.learning_rate=1e-30",
                       "optimizer_config.weight_decay=0", "trainer_config.max_steps=6"};
  const auto resumed = succeed(alone(place, still));
  CHECK_THAT(resumed.out, Contains("Evaluation: the rows that seed 1 chose when the run began; "
                                   "trainer_config.seed=2 does not move them"));
  auto then = Json::parse(before);
  auto now = json_of(place, {"eval", "--snapshot", "snapshot.pt", "--json"});
  for (const char* name : {"snapshot", "step"}) {
    then.erase(name);
    now.erase(name);
  }
  CHECK(now == then);
}

TEST_CASE("the recipe and a table are enough to train a classifier") {
  const ReviewWorkspace place;
  const auto run =
      succeed(trainer(place, {"--config", DDP_SOURCE_DIR "/configs/text_classification.yaml",
                              "data_config.path=reviews.csv", "trainer_config.max_epochs=1",
                              "optimizer_config.warmup_steps=0"}));
  CHECK_THAT(run.out,
             Contains("Vocabulary: WordPiece, ") && Contains("trained on the training texts"));
}

TEST_CASE("a vocabulary of its own texts is the same on two ranks, after a kill and in all modes") {
  const Words own = {"data_config.tokenizer=null"};
  check_exact<ReviewWorkspace>(own, 8);
  const ReviewWorkspace place;
  succeed(alone(place, own));
  CHECK(answers_of(place, {"--input", "others.csv"}).size() == 40);
  CHECK(json_of(place, {"eval", "--snapshot", "snapshot.pt", "--json"})["texts"] == 18);
  succeed(trainer(place, {"export", "--snapshot", "snapshot.pt", "--output", "exported"}));
  CHECK_THAT(read_bytes(place / "exported/tokenizer.json"), Contains("\"film\""));
}

/// With the keys of the labels bad and good in a folder's id2label.
std::string with_keys(std::vector<Review> reviews) {
  for (Review& review : reviews) review.label = review.label == "bad" ? "0" : "1";
  return as_csv(reviews);
}

TEST_CASE("fine-tuning starts from a masked language model, and from a classifier of its own") {
  const ReviewWorkspace place;
  place.write("lines.txt", as_csv(some_reviews(60)));
  succeed(alone(place, {"task=masked_lm", "data_config.path=lines.txt",
                        "trainer_config.snapshot_path=masked.pt", "trainer_config.max_steps=2"}));
  const Words sizes_there = {"~bert_config.n_layer", "~bert_config.n_head", "~bert_config.n_embd",
                             "~bert_config.intermediate", "data_config.tokenizer=null"};
  const auto tuned =
      succeed(alone(place, joined(sizes_there, {"bert_config.init_from=masked.pt"})));
  CHECK_THAT(tuned.out, Contains("masked.pt; initialized at random: pooler and classifier"));
  const auto expected = answers_of(place, {"--input", "others.csv"});
  succeed(trainer(place, {"export", "--snapshot", "snapshot.pt", "--output", "exported"}));
  const auto table_of = [&place](const std::string& model) {
    return succeed(trainer(place, {"predict", "--snapshot", model, "--input", "others.csv"})).out;
  };
  CHECK(table_of("exported") == table_of("snapshot.pt"));
  const auto metrics_of = [&place](const std::string& model, const std::string& table) {
    Json report = json_of(
        place, {"eval", "--snapshot", model, "--data", table, "--batch_size", "4", "--json"});
    for (const char* key : {"snapshot", "step", "data"}) report.erase(key);
    return report;
  };
  place.write("keyed.csv", with_keys(some_reviews(40)));
  CHECK(metrics_of("exported", "others.csv") == metrics_of("snapshot.pt", "others.csv"));
  CHECK(metrics_of("exported", "keyed.csv") == metrics_of("exported", "others.csv"));
  const Words still =
      joined(sizes_there, {"trainer_config.max_steps=1", "optimizer_config.learning_rate=1e-30",
                           "optimizer_config.weight_decay=0"});
  for (const std::string from : {"exported", "first.pt"}) {
    if (from == "first.pt") std::filesystem::copy_file(place / "kept.pt", place / "first.pt");
    if (from == "exported") std::filesystem::rename(place.snapshot(), place / "kept.pt");
    std::filesystem::remove(place.snapshot());
    const auto run = succeed(alone(place, joined(still, {"bert_config.init_from=" + from})));
    CHECK_THAT(run.out, Contains(from + "; initialized at random: none"));
    CHECK(answers_of(place, {"--input", "others.csv"}) == expected);
  }
  const auto by_key = succeed(alone(
      place,
      joined(sizes_there, {"trainer_config.snapshot_path=keyed.pt", "trainer_config.max_steps=1",
                           "data_config.path=keyed.csv", "bert_config.init_from=exported"})));
  CHECK_THAT(by_key.out,
             Contains("initialized at random: none") && Contains("Labels: 2: bad, good"));
  place.write("stars.csv", "text,label\nthe film,1\nthe cast,2\nso long,2\nso slow,1\ndull,10\n");
  const auto other = succeed(alone(
      place, joined(sizes_there, {"trainer_config.snapshot_path=stars.pt",
                                  "trainer_config.max_steps=1", "data_config.path=stars.csv",
                                  "data_config.train_split=1", "bert_config.init_from=exported"})));
  CHECK_THAT(other.out,
             Contains("initialized at random: classifier") && Contains("Labels: 3: 1, 2, 10"));
}

TEST_CASE("rows that cannot be used are left out and named where that is asked for") {
  const ReviewWorkspace place;
  place.write("gaps.csv",
              as_csv(some_reviews(30)) + "good,\" \"\n,the film\n good,the cast\n good,so on\n");
  const auto run = succeed(alone(place, {"trainer_config.max_steps=1", "data_config.path=gaps.csv",
                                         "data_config.on_bad_sample=skip"}));
  CHECK_THAT(run.out, Contains("Left out: 2 rows: ") && Contains("its text is empty; ") &&
                          Contains("its label is empty"));
  CHECK_THAT(run.out, Contains("texts for training 25, evaluation 7, test 0"));
  CHECK_THAT(run.err,
             Contains("WARNING") &&
                 Contains("the labels ' good' and 'good' differ in spaces or capitals alone"));
}

}  // namespace ddp::test
