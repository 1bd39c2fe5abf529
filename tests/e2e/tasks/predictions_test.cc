// Labels for texts by `trainer predict`: of tables, of an option and one by one.
#include <regex>

#include "tests/support/catch.h"

#include "tests/e2e/reviews.h"

namespace ddp::test {

using Catch::Contains;

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
             Catch::StartsWith("input,label,probability,probability of bad,probability of good,"
                               "error,text\n"
                               "\"we said \"\"so\"\",\nthe film\","));
  place.write("gaps.csv", "text\nthe film\n  \nthe cast\n\"\"\n");
  const auto run = finish(trainer(place, joined(kPredict, {"--input", "gaps.csv"})));
  CHECK(run.exit == 1);
  CHECK_THAT(run.err, Contains("gaps.csv: line 3: no prediction: its text is empty") &&
                          Contains("2 inputs could not be read"));
  CHECK(lines_of(run.out).size() == 2);
}

TEST_CASE("a table of predictions has every row of its input, in order, with its columns") {
  const ReviewWorkspace place;
  succeed(alone(place, {"trainer_config.max_steps=1"}));
  place.write("new.csv",
              "id,text,label\n7,the film,good\n8,  ,bad\n9,\"the \"\"cast\"\",\n\",good\n");
  const auto predict = [&](const std::string& input, const std::string& output) {
    const auto run =
        finish(trainer(place, joined(kPredict, {"--input", input, "--output", output})));
    CHECK(run.exit == 1);
    CHECK_THAT(run.err, Contains(input + ": line 3: no prediction: its text is empty"));
    return read_bytes(place / output);
  };
  const std::string table =
      std::regex_replace(predict("new.csv", "out.csv"),
                         std::regex(R"((bad|good),[0-9.e-]+,[0-9.e-]+,[0-9.e-]+,,)"), "ANSWER,");
  CHECK(table ==
        "input,label,probability,probability of bad,probability of good,error,id,text,input.label\n"
        "the film,ANSWER,7,the film,good\n"
        "  ,,,,,its text is empty,8,  ,bad\n"
        "\"the \"\"cast\"\",\n\",ANSWER,9,\"the \"\"cast\"\",\n\",good\n");

  place.write("new.jsonl", R"({"id": 7, "text": "the film", "tags": ["a"]})"
                           "\n\n"
                           R"({"id": 8, "text": null})"
                           "\n"
                           R"({"text": "the \"cast\"", "extra": "x"})"
                           "\n");
  const auto lines = lines_of(predict("new.jsonl", "out.jsonl"));
  REQUIRE(lines.size() == 3);
  const Json first = Json::parse(lines[0]), second = Json::parse(lines[1]),
             third = Json::parse(lines[2]);
  CHECK(first["id"] == 7);
  CHECK(first["tags"] == Json({"a"}));
  CHECK(first["extra"].is_null());
  CHECK(first["error"].is_null());
  CHECK(first["probability"].is_number());
  CHECK(second["id"] == 8);
  CHECK(second["label"].is_null());
  CHECK(second["error"] == "its text is empty");
  CHECK(third["input"] == "the \"cast\"");
  CHECK(third["id"].is_null());
  CHECK(third["extra"] == "x");
}

}  // namespace ddp::test
