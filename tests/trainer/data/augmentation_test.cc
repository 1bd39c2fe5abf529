#include "trainer/data/images/augmentation.h"

#include <set>

#include "tests/support/catch.h"
#include "tests/trainer/data/image_files.h"
#include "trainer/runtime/seed.h"

namespace ddp::test {
namespace {

using train::augment_seed;
using train::augmented;
using train::Image;
using train::ImageConfig;

ImageConfig with(int64_t shift, bool flip) {
  ImageConfig config;
  config.augment_shift = shift;
  config.augment_flip = flip;
  return config;
}

/// One bright pixel in the middle of 9x9: its new place shows how the image was moved.
Image one_point() {
  Image image{9, 9, 1, std::vector<uint8_t>(81, 0)};
  image.pixels[40] = 255;
  return image;
}

std::set<std::size_t> places_of_point(const ImageConfig& config, int draws) {
  std::set<std::size_t> places;
  for (int i = 0; i < draws; ++i) {
    const Image moved = augmented(one_point(), config, augment_seed(1, 0, i));
    for (std::size_t at = 0; at < moved.pixels.size(); ++at)
      if (moved.pixels[at] == 255) places.insert(at);
  }
  return places;
}

TEST_CASE("how an image is changed is a function of seed, epoch and sample alone") {
  const Image image = some_image(12, 12, 3);
  const ImageConfig config = with(4, true);
  const auto drawn = [&](uint64_t seed, int64_t epoch, int64_t sample) {
    return augmented(image, config, augment_seed(seed, epoch, sample)).pixels;
  };
  CHECK(drawn(1, 2, 3) == drawn(1, 2, 3));
  // 81 moves, mirrored or not: among twenty others some differ, whichever of the three changes.
  std::set<std::vector<uint8_t>> seeds, epochs, samples;
  for (int i = 0; i < 20; ++i) {
    seeds.insert(drawn(static_cast<uint64_t>(i), 0, 0));
    epochs.insert(drawn(0, i, 0));
    samples.insert(drawn(0, 0, i));
  }
  CHECK(seeds.size() > 10);
  CHECK(epochs.size() > 10);
  CHECK(samples.size() > 10);
  CHECK(seeds != epochs);
  CHECK(epochs != samples);
}

TEST_CASE("without shift and flip an image stays as it is") {
  const Image image = some_image(5, 6, 3);
  for (int i = 0; i < 5; ++i)
    CHECK(augmented(image, with(0, false), augment_seed(1, 0, i)).pixels == image.pixels);
}

TEST_CASE("an image is moved by at most the shift, to every place within it") {
  const auto places = places_of_point(with(1, false), 400);
  CHECK(places == std::set<std::size_t>{30, 31, 32, 39, 40, 41, 48, 49, 50});
}

TEST_CASE("about every other image is mirrored left to right, the channels of a pixel together") {
  const Image image{1, 2, 3, {1, 2, 3, 4, 5, 6}};
  const std::vector<uint8_t> mirrored = {4, 5, 6, 1, 2, 3};
  int count = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto pixels = augmented(image, with(0, true), augment_seed(1, 0, i)).pixels;
    REQUIRE((pixels == image.pixels || pixels == mirrored));
    count += pixels == mirrored ? 1 : 0;
  }
  CHECK(count > 400);
  CHECK(count < 600);
}

TEST_CASE("the border is continued outwards, also by a shift larger than the image") {
  const Image image{1, 3, 1, {10, 20, 30}};
  std::set<std::vector<uint8_t>> seen;
  for (int i = 0; i < 300; ++i)
    seen.insert(augmented(image, with(5, false), augment_seed(1, 0, i)).pixels);
  CHECK(seen == std::set<std::vector<uint8_t>>{
                    {10, 10, 10}, {10, 10, 20}, {10, 20, 30}, {20, 30, 30}, {30, 30, 30}});
}

}  // namespace
}  // namespace ddp::test
