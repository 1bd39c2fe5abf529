// Text classification from tables to predictions: the invariants of every task, and the mistakes
// that only tables know.
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>

#include "tests/support/catch.h"

#include "tests/e2e/saved_state.h"

namespace ddp::test {
namespace {

using Catch::Contains;
using Json = nlohmann::json;

constexpr const char* kReviewConfig = R"(task: text_classification
data_config:
  path: reviews.csv
  tokenizer: vocab.txt
  block_size: 24
  train_split: 0.8
bert_config: {n_layer: 2, n_head: 2, n_embd: 32, intermediate: 48}
)";

constexpr const char* kReviewVocabulary =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nfilm\nplot\ncast\nwas\nwere\nand\nso\ngreat\nlovely\n"
    "funny\ndull\nslow\npoor\nwe\nsaid\nlong\n,\n.\n\"\n##s\n";

struct Review {
  std::string text;
  std::string label;
};

/// Two thirds are good; of unequal lengths, some with commas, quotes and line ends.
std::vector<Review> some_reviews(int count) {
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

std::string in_quotes(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

std::string as_csv(const std::vector<Review>& reviews, const std::string& separator = ",") {
  std::string table = "label" + separator + "text\n";
  for (const auto& [text, label] : reviews) table += label + separator + in_quotes(text) + "\n";
  return table;
}

std::string as_json_lines(const std::vector<Review>& reviews) {
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

const Words kBucketsAndWeights = {"data_config.bucket_batches=3",
                                  "bert_config.class_weights=balanced"};

Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

void check_table_refusal(const Finished& run, const Words& said) {
  INFO(run.err);
  CHECK(run.exit == 2);
  REQUIRE(lines_of(run.err).size() == 1);
  for (const auto& text : said) CHECK_THAT(run.err, Contains(text));
}

const Words kPredict = {"predict", "--snapshot", "snapshot.pt"};

Json json_of(const Workspace& place, const Words& words) {
  return Json::parse(succeed(trainer(place, words)).out);
}

Json answers_of(const Workspace& place, const Words& input) {
  return json_of(place, joined(joined(kPredict, input), {"--json"}))["predictions"];
}

}  // namespace

TEST_CASE("two ranks learn labels bit for bit as one process with two micro-batches") {
  for (const Words& how : {Words{}, kBucketsAndWeights}) {
    const ReviewWorkspace two, one;
    const auto by_two = succeed(launched(two, 2, how));
    const auto by_one =
        succeed(alone(one, joined(how, {"trainer_config.grad_accumulation_steps=2"})));
    CHECK(differences(two.snapshot(), one.snapshot()) == Words{});
    CHECK(content_sha256(two) == content_sha256(one));
    CHECK(steps_of(by_two.out) == steps_of(by_one.out));
    REQUIRE(!evaluations_of(by_two.out).empty());
    CHECK(evaluations_of(by_two.out) == evaluations_of(by_one.out));
  }
}

TEST_CASE("an estimate of texts counts the parameters that are trained") {
  const ReviewWorkspace place;
  const auto run = succeed(alone(place, {"trainer_config.max_steps=1"}));
  const Words words = {"estimate", "--config", "config.yaml"};
  const auto report =
      nlohmann::json::parse(succeed(trainer(place, {words[0], words[1], words[2], "--json"})).out);
  CHECK_THAT(run.out, Contains("(" + report["parameters"]["total"].dump() + ")"));
  CHECK(report["texts_per_step"] == 4);
  CHECK(report["flops_per_step"].get<double>() > 0.0);
  CHECK_THAT(succeed(trainer(place, words)).out,
             Contains("token embedding") && Contains("4 texts each") && Contains("activations"));
}

TEST_CASE("a classifier that is killed and started again ends as the unbroken one") {
  const ReviewWorkspace unbroken, broken;
  const auto whole = succeed(alone(unbroken, kBucketsAndWeights));
  {
    ChildProgram victim(alone(broken, kBucketsAndWeights));
    victim.wait_for("Step 8 | Train", 1, kPatience);
    victim.signal(SIGKILL);
    victim.wait_all_gone(kPatience);
  }
  succeed(alone(broken, kBucketsAndWeights));
  CHECK(differences(unbroken.snapshot(), broken.snapshot()) == Words{});
  CHECK(steps_of(log_of(broken)) == steps_of(whole.out));
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

TEST_CASE("texts are labelled alike from every kind of file, from an option and one by one") {
  const ReviewWorkspace place;
  succeed(alone(place));
  const auto reviews = some_reviews(7);
  place.write("new.csv", as_csv(reviews));
  place.write("new.tsv", as_csv(reviews, "\t"));
  place.write("new.jsonl", as_json_lines(reviews));
  const auto of_csv = answers_of(place, {"--input", "new.csv"});
  REQUIRE(of_csv.size() == 7);
  CHECK(of_csv[1]["input"] == reviews[1].text);
  CHECK(of_csv[1]["answers"].size() == 2);
  CHECK(answers_of(place, {"--input", "new.tsv"}) == of_csv);
  CHECK(answers_of(place, {"--input", "new.jsonl"}) == of_csv);
  const auto single = answers_of(place, {"--text", reviews[0].text});
  REQUIRE(single.size() == 1);
  CHECK(single[0]["label"] == of_csv[0]["label"]);
  CHECK(single[0]["probability"].get<double>() ==
        Approx(of_csv[0]["probability"].get<double>()).epsilon(1e-5));
  place.write("lines.txt", reviews[0].text + "\n" + reviews[2].text + "\n");
  ChildOptions typed = trainer(place, {});
  typed.argv = {
      "/bin/sh", "-c",
      "exec '" + trainer_program() + "' predict --snapshot snapshot.pt --json < lines.txt"};
  const auto lines = lines_of(succeed(typed).out);
  REQUIRE(lines.size() == 2);
  CHECK(Json::parse(lines[0])["label"] == single[0]["label"]);
  CHECK(Json::parse(lines[1])["input"] == reviews[2].text);
}

TEST_CASE("predictions go to a table with a probability for each label") {
  const ReviewWorkspace place;
  succeed(alone(place, {"trainer_config.max_steps=1"}));
  place.write("new.csv", "text\n\"we said \"\"so\"\",\nthe film\"\n");
  succeed(trainer(place, joined(kPredict, {"--input", "new.csv", "--output", "answers.csv"})));
  CHECK_THAT(read_bytes(place / "answers.csv"),
             Catch::StartsWith("input,label,probability,probability of bad,probability of good\n"
                               "\"we said \"\"so\"\",\nthe film\","));
  place.write("gaps.csv", "text\nthe film\n  \nthe cast\n\"\"\n");
  const auto run = finish(trainer(place, joined(kPredict, {"--input", "gaps.csv"})));
  CHECK(run.exit == 1);
  CHECK_THAT(run.err, Contains("gaps.csv: line 3: no prediction: its text is empty") &&
                          Contains("2 inputs could not be read"));
  CHECK(lines_of(run.out).size() == 2);
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
  place.write("stars.csv", "text,label\nthe film,1\nthe cast,2\nso long,2\nso slow,1\ndull,10\n");
  const auto other = succeed(alone(
      place, joined(sizes_there, {"trainer_config.snapshot_path=stars.pt",
                                  "trainer_config.max_steps=1", "data_config.path=stars.csv",
                                  "data_config.train_split=1", "bert_config.init_from=exported"})));
  CHECK_THAT(other.out,
             Contains("initialized at random: classifier") && Contains("Labels: 3: 1, 2, 10"));
}

TEST_CASE("tables that do not fit are refused in one line") {
  const ReviewWorkspace place;
  const auto run_with = [&](const Words& overrides) { return finish(alone(place, overrides)); };
  check_table_refusal(
      run_with({"data_config.text_column=body"}),
      {"data_config.path", "reviews.csv: has no column body",
       "its columns are label, text; rename one of them, or set data_config.text_column"});
  check_table_refusal(run_with({"data_config.path=config.yaml"}), {"config.yaml", "is no table"});
  place.write("single.csv", "text,label\nthe film,a\nthe cast,a\nso,b\n");
  check_table_refusal(
      run_with({"data_config.path=single.csv"}),
      {"single.csv: of 3 rows only that at line 4 has the label b", "data_config.eval_path"});
  place.write("empty.csv", "text,label\nthe film,a\n\"\",b\n");
  check_table_refusal(run_with({"data_config.path=empty.csv"}),
                      {"empty.csv: line 3: its text is empty", "data_config.on_bad_sample=skip"});
  place.write("unknown.csv", "text,label\nthe film,good\nthe cast,awful\n");
  check_table_refusal(
      run_with({"data_config.eval_path=unknown.csv"}),
      {"data_config.eval_path", "unknown.csv: line 3: the label awful is not one", "bad, good"});
  place.write("one.csv", "text,label\nthe film,a\nthe cast,a\n");
  check_table_refusal(run_with({"data_config.path=one.csv"}), {"all rows have the label a"});
  check_table_refusal(run_with({"bert_config.class_weights=[1, 2, 3]"}),
                      {"bert_config.class_weights", "3 numbers for 2 labels (bad, good)"});
  check_table_refusal(run_with({"bert_config.class_weights=equal"}),
                      {"bert_config.class_weights", "balanced"});
  check_table_refusal(run_with({"trainer_config.metric_for_best_model=f2"}), {"f1_macro"});
  check_table_refusal(run_with({"trainer_config.batch_size=100"}),
                      {"fewer than trainer_config.batch_size=100"});
  check_table_refusal(run_with({"data_config.mask_share=0.2"}), {"data_config.mask_share"});
  check_table_refusal(run_with({"bert_config.init_from=reviews.csv"}),
                      {"bert_config.init_from", "is neither a snapshot"});
}

TEST_CASE("a classifier's snapshot refuses labels and inputs that it does not know") {
  const ReviewWorkspace place;
  succeed(alone(place, {"trainer_config.max_steps=1"}));
  place.write("unknown.csv", "text,label\nthe film,good\nthe cast,awful\n");
  check_table_refusal(
      finish(trainer(place, {"eval", "--snapshot", "snapshot.pt", "--data", "unknown.csv"})),
      {"unknown.csv: line 3: the label awful is not one that the model knows: bad, good; "
       "correct the row"});
  check_table_refusal(finish(trainer(place, joined(kPredict, {"--text", ""}))),
                      {"--text: is empty"});
  place.write("other.csv", "body\nx\n");
  check_table_refusal(finish(trainer(place, joined(kPredict, {"--input", "other.csv"}))),
                      {"--input", "has no column text", "rename one of them"});
  check_table_refusal(
      finish(trainer(place, {"generate", "--snapshot", "snapshot.pt", "--prompt", "a"})),
      {"was trained with task text_classification"});
}

TEST_CASE("rows that cannot be used are left out and named where that is asked for") {
  const ReviewWorkspace place;
  place.write("gaps.csv", as_csv(some_reviews(30)) + "good,\" \"\n,the film\n");
  const auto run = succeed(alone(place, {"trainer_config.max_steps=1", "data_config.path=gaps.csv",
                                         "data_config.on_bad_sample=skip"}));
  CHECK_THAT(run.out, Contains("Left out: 2 rows: ") && Contains("its text is empty; ") &&
                          Contains("its label is empty"));
  CHECK_THAT(run.out, Contains("texts for training 24, evaluation 6, test 0"));
}

}  // namespace ddp::test
