#include "trainer/metrics/confusion_matrix.h"

#include <fmt/format.h>

#include "tests/support/catch.h"

namespace ddp::train {
namespace {

using Catch::Contains;

/// Rows true, columns predicted: "b" is taken for "c" and back, the rest is right.
ConfusionMatrix of_four() {
  return {{"a", "b", "c", "d"}, {5, 0, 0, 0, 0, 3, 2, 0, 0, 1, 4, 0, 0, 0, 0, 7}};
}

TEST_CASE("a class of a confusion matrix has its row as truth and its column as answers") {
  const ClassCounts counts = of_four().of_class(1);
  CHECK(counts.right == 3.0);
  CHECK(counts.actual == 5.0);
  CHECK(counts.answered == 4.0);
  CHECK(scores_of(counts).recall == 0.6);
  CHECK(scores_of(counts).precision == 0.75);
}

TEST_CASE("an abbreviated matrix keeps the classes with the most mistakes, and all samples") {
  const ConfusionMatrix all = of_four();
  CHECK(abbreviated(all, 4).labels == all.labels);
  const ConfusionMatrix brief = abbreviated(all, 3);
  CHECK(brief.labels == std::vector<std::string>{"b", "c", "2 others"});
  CHECK(brief.counts == std::vector<int64_t>{3, 2, 0, 1, 4, 0, 0, 0, 12});
}

TEST_CASE("classes with as many mistakes as others are kept in their order") {
  const ConfusionMatrix even{{"a", "b", "c", "d"}, std::vector<int64_t>(16, 1)};
  CHECK(abbreviated(even, 3).labels == std::vector<std::string>{"a", "b", "2 others"});
}

TEST_CASE("what a line says of a matrix is read back") {
  ConfusionMatrix matrix = of_four();
  matrix.labels[0] = "quote \" and <tag>";
  const ConfusionMatrix read = confusion_in(fmt::format("{{{}}}", confusion_members(matrix)));
  CHECK(read.labels == matrix.labels);
  CHECK(read.counts == matrix.counts);
}

TEST_CASE("a line whose matrix does not fit together holds none") {
  for (const char* line :
       {"", "{}", "[1]", R"({"labels":["a"]})", R"({"labels":"a","counts":[[1]]})",
        R"({"labels":["a"],"counts":[[1,2]]})", R"({"labels":["a","b"],"counts":[[1,2]]})",
        R"({"labels":["a"],"counts":[["x"]]})", R"({"labels":["a"],"counts":3})",
        R"({"labels":[1],"counts":[[1]]})"}) {
    INFO(line);
    CHECK(confusion_in(line).empty());
  }
}

TEST_CASE("the table for a terminal has recall behind the rows and precision below the columns") {
  const std::string table = confusion_table({{"ham", "a very long name"}, {3, 1, 0, 4}});
  CHECK(table ==
        "true \\ said           ham a very long   recall\n"
        "ham                     3            1  0.7500\n"
        "a very long             0            4  1.0000\n"
        "precision          1.0000       0.8000\n");
}

}  // namespace
}  // namespace ddp::train
