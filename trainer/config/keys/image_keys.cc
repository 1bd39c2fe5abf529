#include "trainer/config/keys/key_rows.h"

namespace ddp::train {

std::vector<Field> image_fields() {
  constexpr Range kMostStages{1, 8};
  constexpr Range kSizes{1, 1e5};
  return {
      {"image_config.network", DDP_MEMBER(image.network), kAnyValue, NullMeans::kError, "", "",
       "dense: hidden layers; conv: stages of 3x3 convolution, ReLU and 2x2 max-pooling, then a "
       "hidden layer."},
      {"image_config.n_layer", DDP_MEMBER(image.n_layer), kMostStages, NullMeans::kError, "", "",
       "Hidden layers of dense, stages of conv."},
      {"image_config.width", DDP_MEMBER(image.width), kSizes, NullMeans::kError, "", "",
       "Units of a hidden layer."},
      {"image_config.conv_channels", DDP_MEMBER(image.conv_channels), Range{1, 4096},
       NullMeans::kError, "", "",
       "Channels of the first stage of conv; each further stage has twice as many."},
      {"image_config.batch_norm", DDP_MEMBER(image.batch_norm), kAnyValue, NullMeans::kError, "",
       "",
       "Batch normalization behind each convolution: local normalizes each rank's micro-batch by "
       "itself, synchronized those of all ranks together."},
      {"image_config.dropout", DDP_MEMBER(image.dropout), kProbability, NullMeans::kError, "",
       "probability", "Dropout behind each hidden layer."},
      {"image_config.size", DDP_MEMBER(image.size), kSizes, NullMeans::kNotGiven,
       "that of the images, which must be equal", "pixels",
       "Width and height that all images are brought to."},
      {"image_config.channels", DDP_MEMBER(image.channels), Range{1, 3}, NullMeans::kNotGiven,
       "those of the first image", "", "1: gray, 3: RGB."},
      {"image_config.pixel_mean", DDP_MEMBER(image.pixel_mean), Range{0, 1}, NullMeans::kError, "",
       "", "Subtracted from each pixel, which is from 0 to 1."},
      {"image_config.pixel_std", DDP_MEMBER(image.pixel_std), kAbove0, NullMeans::kError, "", "",
       "What each pixel is divided by after that."},
      {"image_config.augment_shift", DDP_MEMBER(image.augment_shift), Range{0, 1e5},
       NullMeans::kOff, "", "pixels",
       "Moves each training image by up to so many pixels in each direction, anew in each epoch."},
      {"image_config.augment_flip", DDP_MEMBER(image.augment_flip), kAnyValue, NullMeans::kOff, "",
       "", "Mirrors every other training image left to right, anew in each epoch."},
  };
}

}  // namespace ddp::train
