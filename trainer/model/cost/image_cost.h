// The layers of an image classifier, and the cost of training it, estimated arithmetically. Does
// not use LibTorch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/config/model_config.h"
#include "trainer/model/cost/training_cost.h"

namespace ddp::train {

struct Config;

struct ImageSizes {
  int64_t channels = 1;
  int64_t height = 0;
  int64_t width = 0;
  int64_t classes = 0;
};

/// A 3x3 convolution, or a linear layer.
struct ImageLayer {
  std::string name;  ///< "conv_0", "dense_0", "head"
  bool convolution = false;
  int64_t inputs = 0;   ///< Channels, or values.
  int64_t outputs = 0;  ///< Likewise.
  int64_t places = 1;   ///< Pixels that it is computed at.
  bool pooled = false;  ///< Followed by 2x2 max-pooling.

  int64_t weights() const { return inputs * outputs * (convolution ? 9 : 1); }
};

/// In the order of the forward pass; the last one yields the logits.
std::vector<ImageLayer> image_layers(const ImageConfig& config, const ImageSizes& sizes);

std::vector<ParameterPart> image_parameter_parts(const ImageConfig& config,
                                                 const ImageSizes& sizes);
/// In the order of the forward pass.
std::vector<ParameterShape> image_parameter_shapes(const ImageConfig& config,
                                                   const ImageSizes& sizes);
/// Forward and backward pass of one image, without normalisation, ReLU and pooling.
double image_flops(const ImageConfig& config, const ImageSizes& sizes);
/// As memory_items().
std::vector<MemoryItem> image_memory_items(const Config& config, const ImageSizes& sizes,
                                           const ComputePlace& place);

}  // namespace ddp::train
