// Labelled images as the samples of a classifier.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/config/model_config.h"
#include "trainer/data/images/bad_samples.h"
#include "trainer/data/images/image_set.h"
#include "trainer/data/sample_source.h"

namespace ddp::train {

/// The shape of all images that a model sees.
struct ImageShape {
  int64_t channels = 1;
  int64_t height = 0;
  int64_t width = 0;
  bool operator==(const ImageShape&) const = default;

  /// "28x28 gray", "32x24 RGB"
  std::string str() const;
};

/// Determines the shape from image_config.channels and .size or, where those are not set, from the
/// first readable image. Throws UserError if none is readable.
ImageShape shape_of(const ImageSet& images, const ImageConfig& config);

/// The pixels of an image of `shape`, (value / 255 - mean) / standard deviation: float32
/// [channels, height, width].
void write_pixels(const Image& image, const ImageShape& shape, const ImageConfig& config,
                  float* to);

/// Image `index` of the set in the model's shape. Throws BrokenImage, also if its size differs and
/// image_config.size is not set.
Image image_of_shape(const ImageSet& images, int64_t index, const ImageShape& shape,
                     const ImageConfig& config);

inline constexpr int64_t kLeftOut = -1;  ///< Label of an image that is left out as it is broken.

/// Divides images into training and evaluation: the share `used` of all, drawn by a permutation
/// that depends on their number alone, so that no seed trains on images that another run evaluates
/// on.
SampleSplit split_images(int64_t images, double used, double training_share);

/// Inputs: float32 [B, channels, height, width] as write_pixels(); targets: int64 [B], the labels
/// or kLeftOut.
class ImageSamples : public SampleSource {
 public:
  struct Options {
    ImageShape shape;
    ImageConfig config;
    uint64_t seed = 0;
    bool augmented = false;  ///< By image_config's settings; differently in each epoch.
  };
  /// Images `indices` of the set, in that order. `images` and `bad` outlive it.
  ImageSamples(const ImageSet& images, std::vector<int64_t> indices, const Options& options,
               BadSamples& bad);

  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  Batch collate(const BatchRequest& request) const override;
  TargetCount targets() const override { return {1, bad_.stops() || !images_.may_be_broken()}; }
  const std::string& fingerprint() const override { return fingerprint_; }

 private:
  /// Writes the image and returns its label, or kLeftOut.
  int64_t fill(int64_t index, int64_t epoch, std::span<float> pixels) const;

  const ImageSet& images_;
  std::vector<int64_t> indices_;
  Options options_;
  BadSamples& bad_;
  std::string fingerprint_;
};

}  // namespace ddp::train
