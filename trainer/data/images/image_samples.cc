#include "trainer/data/images/image_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "trainer/data/distributed_sampler.h"
#include "trainer/data/images/augmentation.h"
#include "trainer/data/rows.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/sha256.h"
#include "trainer/runtime/seed.h"

namespace ddp::train {

std::string ImageShape::str() const {
  return fmt::format("{}x{} {}", width, height, channels == 1 ? "gray" : "RGB");
}

ImageShape shape_of(const ImageSet& images, const ImageConfig& config) {
  std::string first_problem;
  for (int64_t i = 0; i < images.size(); ++i) {
    try {
      const Image image = images.image(i, config.channels.value_or(0));
      return {image.channels, config.size.value_or(image.height),
              config.size.value_or(image.width)};
    } catch (const BrokenImage& broken) {
      if (first_problem.empty())
        first_problem = fmt::format("{}: {}", images.name(i), broken.what());
    }
  }
  throw UserError(fmt::format("no image can be read; the first: {}", first_problem));
}

void write_pixels(const Image& image, const ImageShape& shape, const ImageConfig& config,
                  float* to) {
  const auto scale = static_cast<float>(1.0 / (255.0 * config.pixel_std));
  const auto offset = static_cast<float>(config.pixel_mean / config.pixel_std);
  const int64_t pixels = shape.height * shape.width;
  for (int64_t channel = 0; channel < shape.channels; ++channel) {
    const uint8_t* from = image.pixels.data() + channel;
    for (int64_t i = 0; i < pixels; ++i)
      *to++ = static_cast<float>(from[i * shape.channels]) * scale - offset;
  }
}

Image image_of_shape(const ImageSet& images, int64_t index, const ImageShape& shape,
                     const ImageConfig& config) {
  Image image = images.image(index, shape.channels);
  if (config.size) return resized(image, shape.height, shape.width);
  if (image.height == shape.height && image.width == shape.width) return image;
  throw BrokenImage(
      fmt::format("is {}x{}, and the model takes {}x{}; resize it, or train with "
                  "image_config.size, which gives "
                  "all images one size",
                  image.width, image.height, shape.width, shape.height));
}

SampleSplit split_images(int64_t images, double used, double training_share) {
  constexpr uint64_t kKey = 0x1A6E5;  // any constant
  const auto count = static_cast<int64_t>(static_cast<double>(images) * used);
  const auto training = static_cast<int64_t>(static_cast<double>(count) * training_share);
  SampleSplit split;
  if (images == 0) return split;
  const Permutation order(images, kKey);
  for (int64_t i = 0; i < count; ++i)
    (i < training ? split.training : split.evaluation).push_back(order(i));
  std::sort(split.training.begin(), split.training.end());
  std::sort(split.evaluation.begin(), split.evaluation.end());
  return split;
}

ImageSamples::ImageSamples(const ImageSet& images, std::vector<int64_t> indices,
                           const Options& options, BadSamples& bad)
    : images_(images), indices_(std::move(indices)), options_(options), bad_(bad) {
  Sha256 sum;
  sum.update(images.fingerprint()).update(options_.shape.str());
  sum.update(indices_.data(), indices_.size() * sizeof(int64_t));
  fingerprint_ = sum.hex();
}

Batch ImageSamples::collate(const BatchRequest& request) const {
  const ImageShape& shape = options_.shape;
  Rows<float> images(request.samples.size(), {shape.channels, shape.height, shape.width},
                     request.pinned);
  std::vector<int64_t> labels;
  for (std::size_t i = 0; i < request.samples.size(); ++i)
    labels.push_back(fill(request.samples[i], request.epoch, images[i]));
  const auto left_out = std::ranges::count(labels, kLeftOut);
  return {{{kInputs, images.tensor()}, {kTargets, tensor_of<int64_t>(labels, request.pinned)}},
          std::ssize(labels) - left_out};
}

int64_t ImageSamples::fill(int64_t index, int64_t epoch, std::span<float> pixels) const {
  const int64_t which = indices_[static_cast<std::size_t>(index)];
  try {
    Image image = image_of_shape(images_, which, options_.shape, options_.config);
    if (options_.augmented)
      image = augmented(image, options_.config, augment_seed(options_.seed, epoch, index));
    write_pixels(image, options_.shape, options_.config, pixels.data());
    return images_.labels()[static_cast<std::size_t>(which)];
  } catch (const BrokenImage& broken) {
    bad_.found(images_.name(which), broken.what());
    std::ranges::fill(pixels, 0.0F);
    return kLeftOut;
  }
}

}  // namespace ddp::train
