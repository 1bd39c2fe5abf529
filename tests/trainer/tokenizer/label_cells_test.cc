// The labels of a row: lists, names with separators, numbers, and what is refused.
#include "trainer/data/text/label_cells.h"

#include "tests/support/catch.h"
#include "tests/trainer/user_error.h"

namespace ddp::test {

using namespace ddp::train;

namespace {

using Catch::Contains;
using LabelNames = std::vector<std::string>;

}  // namespace

TEST_CASE("labels are a JSON list, or names with separators") {
  CHECK(labels_in_cell(R"(["toxic", "a, b"])", ",") == LabelNames{"toxic", "a, b"});
  CHECK(labels_in_cell("[27, 3]", ",") == LabelNames{"27", "3"});
  CHECK(labels_in_cell("toxic, rude", ",") == LabelNames{"toxic", "rude"});
  CHECK(labels_in_cell("a :: b", "::") == LabelNames{"a", "b"});
  CHECK(labels_in_cell("one", ",") == LabelNames{"one"});
  for (const char* none : {"", " ", "[]"}) CHECK(labels_in_cell(none, ",").empty());
}

TEST_CASE("labels that are no list of names are refused with the reason") {
  const auto refused = [](const std::string& cell) {
    return user_error_of([&] { labels_in_cell(cell, ","); });
  };
  CHECK_THAT(refused("['a', 'b']"), Contains(R"(are not a JSON list; write ["a", "b"])"));
  CHECK_THAT(refused("[[1]]"), Contains("are not a JSON list"));
  CHECK_THAT(refused("[0, 1, 0]"), Contains("name 0 twice") && Contains("not 0 or 1 for each"));
  CHECK_THAT(refused("a,,b"), Contains("one of the labels a,,b is empty"));
  CHECK_THAT(refused("[null]"), Contains("hold null"));
}

TEST_CASE("a number is read whole") {
  CHECK(number_in_cell("3.25") == 3.25F);
  CHECK(number_in_cell(" -1e-3 ") == -1e-3F);
  for (const char* other : {"", "3,5", "nan", "inf", "1e99", "4 stars"})
    CHECK_THAT(user_error_of([&] { number_in_cell(other); }), Contains("is not a number"));
}

}  // namespace ddp::test
