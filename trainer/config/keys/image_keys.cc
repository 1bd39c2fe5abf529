#include "trainer/config/keys/key_rows.h"

namespace ddp::train {

std::vector<Field> image_fields() {
  constexpr Range kMostStages{1, 8};
  constexpr Range kSizes{1, 1e5};
  return for_tasks(
      {TaskKind::kImageClassification},
      {
          {DDP_KEY(image, network),
           .meaning = "dense: hidden layers; conv: stages of 3x3 convolution, ReLU and 2x2 "
                      "max-pooling, then a hidden layer."},
          {DDP_KEY(image, n_layer), .range = kMostStages,
           .meaning = "Hidden layers of dense, stages of conv."},
          {DDP_KEY(image, width), .range = kSizes, .meaning = "Units of a hidden layer."},
          {DDP_KEY(image, conv_channels), .range = Range{1, 4096},
           .meaning = "Channels of the first stage of conv; each further stage has twice as many."},
          {DDP_KEY(image, batch_norm),
           .meaning = "Batch normalization behind each convolution: local normalizes each rank's "
                      "micro-batch by itself, synchronized those of all ranks together."},
          {DDP_KEY(image, dropout), .range = kProbability, .unit = "probability",
           .meaning = "Dropout behind each hidden layer."},
          {DDP_KEY(image, size), .range = kSizes, .unit = "pixels",
           .null_means = NullMeans::kNotGiven,
           .default_text = "that of the images, which must be equal",
           .meaning = "Width and height that all images are brought to."},
          {DDP_KEY(image, channels), .range = Range{1, 3}, .null_means = NullMeans::kNotGiven,
           .default_text = "those of the first image", .meaning = "1: gray, 3: RGB."},
          {DDP_KEY(image, pixel_mean), .range = Range{0, 1},
           .meaning = "Subtracted from each pixel, which is from 0 to 1."},
          {DDP_KEY(image, pixel_std), .range = kAbove0,
           .meaning = "What each pixel is divided by after that."},
          {DDP_KEY(image, augment_shift), .range = Range{0, 1e5}, .unit = "pixels",
           .null_means = NullMeans::kOff,
           .meaning = "Moves each training image by up to so many pixels in each direction, anew "
                      "in each epoch."},
          {DDP_KEY(image, augment_flip), .null_means = NullMeans::kOff,
           .meaning = "Mirrors every other training image left to right, anew in each epoch."},
      });
}

}  // namespace ddp::train
