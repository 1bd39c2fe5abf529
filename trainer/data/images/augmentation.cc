#include "trainer/data/images/augmentation.h"

#include <algorithm>

#include "trainer/runtime/seed.h"

namespace ddp::train {
namespace {

/// From -most to most. The remainder favours some by less than 2^-50.
int64_t random_shift(int64_t most, uint64_t random) {
  const auto choices = static_cast<uint64_t>(2 * most + 1);
  return static_cast<int64_t>(random % choices) - most;
}

}  // namespace

Image augmented(const Image& image, const ImageConfig& config, uint64_t seed) {
  const int64_t down = random_shift(config.augment_shift, mix64(seed, 0));
  const int64_t right = random_shift(config.augment_shift, mix64(seed, 1));
  const bool mirrored = config.augment_flip && mix64(seed, 2) % 2 == 1;
  Image result = image;
  auto to = result.pixels.begin();
  for (int64_t row = 0; row < image.height; ++row) {
    const int64_t from_row = std::clamp<int64_t>(row - down, 0, image.height - 1);
    for (int64_t column = 0; column < image.width; ++column) {
      const int64_t seen = mirrored ? image.width - 1 - column : column;
      const int64_t from_column = std::clamp<int64_t>(seen - right, 0, image.width - 1);
      const auto from =
          image.pixels.begin() + (from_row * image.width + from_column) * image.channels;
      to = std::copy_n(from, image.channels, to);
    }
  }
  return result;
}

}  // namespace ddp::train
