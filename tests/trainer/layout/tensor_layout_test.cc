#include "trainer/layout/tensor_layout.h"

#include <stdexcept>

#include "tests/support/catch.h"

namespace ddp::train {
namespace {

using Numbers = std::vector<int64_t>;

/// The elements of a box by rows, as their numbers in a tensor of `shape`; one by one.
Numbers numbers_of(const Box& box, const Numbers& shape) {
  Numbers numbers;
  for (int64_t n = 0; n < elements_in(shape); ++n) {
    int64_t rest = n;
    bool inside = true;
    for (std::size_t d = shape.size(); d-- > 0; rest /= shape[d]) {
      const int64_t at = rest % shape[d];
      inside = inside && at >= box.offsets[d] && at < box.offsets[d] + box.sizes[d];
    }
    if (inside) numbers.push_back(n);
  }
  return numbers;
}

Numbers numbers_of(const TensorLayout& layout) {
  Numbers numbers;
  for (const Box& box : layout.boxes) {
    const Numbers of_box = numbers_of(box, layout.shape);
    numbers.insert(numbers.end(), of_box.begin(), of_box.end());
  }
  return numbers;
}

Numbers part(const Numbers& numbers, int64_t begin, int64_t end) {
  return {numbers.begin() + begin, numbers.begin() + end};
}

const std::vector<TensorLayout>& layouts() {
  static const std::vector<TensorLayout> all = {
      TensorLayout::whole({}),
      TensorLayout::whole({7}),
      TensorLayout::whole({3, 4, 5}),
      TensorLayout::cut({7, 3}, 0, {{2, 5}}),
      TensorLayout::cut({5, 8}, 1, {{2, 5}}),
      TensorLayout::cut({12, 2}, 0, {{0, 2}, {4, 6}, {8, 10}}),
      TensorLayout::cut({4, 3, 2}, 1, {{1, 3}})};
  return all;
}

}  // namespace

TEST_CASE("any slice of a layout has the elements of the rank's tensor from begin to end") {
  for (const TensorLayout& layout : layouts()) {
    const Numbers all = numbers_of(layout);
    const auto count = static_cast<int64_t>(all.size());
    REQUIRE(count == layout.elements());
    for (int64_t begin = 0; begin <= count; ++begin) {
      for (int64_t end = begin; end <= count; ++end) {
        const TensorLayout slice = layout.slice(begin, end);
        REQUIRE(numbers_of(slice) == part(all, begin, end));
        REQUIRE(slice.first == begin);
        for (const Box& box : slice.boxes) REQUIRE(box.elements() > 0);
      }
    }
  }
}

TEST_CASE("a slice beyond a layout's elements, which is padding, has the elements that there are") {
  const auto layout = TensorLayout::cut({7, 3}, 0, {{4, 7}});
  CHECK((layout.slice(6, 12) == layout.slice(6, 9)));
  CHECK(layout.slice(9, 12).boxes.empty());
}

TEST_CASE("blocks of elements are laid out as their elements are, if no box ends within one") {
  const auto whole = TensorLayout::whole({7, 5}, /*counted=*/true, 3);
  const auto blocks_of = [&](int64_t begin, int64_t end) {
    return whole.slice(begin, end).in_blocks(4);
  };
  CHECK((whole.in_blocks(4) == TensorLayout::whole({9}, true, 3)));
  CHECK((blocks_of(8, 20).boxes == std::vector{Box::rows({9}, 2, 5)}));
  CHECK((blocks_of(8, 35).boxes == std::vector{Box::rows({9}, 2, 9)}));
  CHECK(blocks_of(8, 20).first == 2);
  CHECK(blocks_of(8, 8).boxes.empty());
  CHECK_THROWS_AS(blocks_of(8, 18), std::logic_error);
  CHECK_THROWS_AS(blocks_of(5, 20), std::logic_error);
  CHECK_THROWS_AS(TensorLayout::cut({4, 6}, 1, {{0, 3}}).in_blocks(4), std::logic_error);
  CHECK(numbers_of(TensorLayout::cut({4, 8}, 1, {{4, 8}}).in_blocks(4)) == Numbers{1, 3, 5, 7});
}

TEST_CASE("a slice of whole rows is one box") {
  const auto layout = TensorLayout::whole({6, 4, 2});
  CHECK((layout.slice(8, 40).boxes == std::vector{Box::rows({6, 4, 2}, 1, 5)}));
  CHECK(layout.slice(0, 48).is_whole());
  CHECK(layout.slice(3, 45).boxes.size() == 5);  // of a row, of its slices and of one slice
}

TEST_CASE(
    "a box is read in runs of elements that are adjacent in the tensor, as few as there are") {
  for (const TensorLayout& layout : layouts()) {
    for (const Box& box : layout.boxes) {
      Numbers read;
      for_each_run(box, layout.shape, [&](int64_t first, int64_t count) {
        if (!read.empty()) CHECK(first > read.back() + 1);
        for (int64_t i = 0; i < count; ++i) read.push_back(first + i);
      });
      CHECK(read == numbers_of(box, layout.shape));
    }
  }
}

TEST_CASE("the shape of a part is that of its boxes, one after the other") {
  CHECK(TensorLayout::cut({12, 2}, 0, {{0, 2}, {4, 6}, {8, 10}}).local_shape() == Numbers{6, 2});
  CHECK(TensorLayout::cut({5, 8}, 1, {{2, 5}}).local_shape() == Numbers{5, 3});
  CHECK(TensorLayout::whole({}).local_shape().empty());
  CHECK_THROWS_AS(TensorLayout::cut({5, 8}, 1, {{0, 1}, {2, 5}}), std::logic_error);
}

}  // namespace ddp::train
