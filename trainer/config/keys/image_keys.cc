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
           .meaning = "Number of hidden layers (dense) or stages (conv)."},
          {DDP_KEY(image, width), .range = kSizes, .meaning = "Units per hidden layer."},
          {DDP_KEY(image, conv_channels), .range = Range{1, 4096},
           .meaning = "Channels of the first stage (conv); each further stage has twice as many."},
          {DDP_KEY(image, batch_norm),
           .meaning = "Batch normalization after each convolution: local normalizes over each "
                      "rank's micro-batch, synchronized over those of all ranks."},
          {DDP_KEY(image, dropout), .range = kProbability, .unit = "probability",
           .meaning = "Dropout after each hidden layer."},
          {DDP_KEY(image, size), .range = kSizes, .unit = "pixels",
           .null_means = NullMeans::kNotGiven,
           .default_text = "that of the images, which must all be the same",
           .meaning = "Width and height to which all images are resized."},
          {DDP_KEY(image, channels), .range = Range{1, 3}, .null_means = NullMeans::kNotGiven,
           .default_text = "that of the first image", .meaning = "1: grayscale, 3: RGB."},
          {DDP_KEY(image, pixel_mean), .range = Range{0, 1},
           .meaning = "Mean, subtracted from each pixel (0 to 1)."},
          {DDP_KEY(image, pixel_std), .range = kAbove0,
           .meaning = "Standard deviation, by which each pixel is then divided."},
          {DDP_KEY(image, augment_shift), .range = Range{0, 1e5}, .unit = "pixels",
           .null_means = NullMeans::kOff,
           .meaning = "Shift each training image by up to this many pixels in each direction, "
                      "drawn anew each epoch."},
          {DDP_KEY(image, augment_flip), .null_means = NullMeans::kOff,
           .meaning = "Mirror each training image left to right with probability 1/2, drawn anew "
                      "each epoch."},
      });
}

}  // namespace ddp::train
