// Image classifiers: a dense network and a small convolutional one.
//
// dense: n_layer hidden layers of `width` units, each with ReLU and dropout. conv: n_layer stages
// of a 3x3 convolution, batch normalisation where asked for, ReLU and 2x2 max-pooling where there
// are two rows and columns left, of conv_channels channels that double from stage to stage; then a
// hidden layer of `width` units. Both end in a linear layer. Weights are drawn as in K. He et al.,
// "Delving deep into rectifiers" (ICCV 2015): uniform, variance 2 / inputs.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/config/model_config.h"
#include "trainer/model/blocks/batch_norm.h"
#include "trainer/model/cost/image_cost.h"

namespace ddp::train {

class ImageNetworkImpl : public torch::nn::Module {
 public:
  using Sizes = ImageSizes;
  ImageNetworkImpl(const ImageConfig& config, const Sizes& sizes, uint64_t seed);

  /// float32 [B, channels, height, width] -> logits [B, classes].
  torch::Tensor forward(const torch::Tensor& x_BCHW);

  struct NetworkParameter {
    std::string name;
    torch::Tensor tensor;
    ParameterRole role = ParameterRole::kOther;
  };
  /// In the order of the forward pass.
  std::vector<NetworkParameter> network_parameters() const;
  std::vector<BatchNorm>& norms() { return norms_; }
  const std::vector<BatchNorm>& norms() const { return norms_; }
  int64_t parameter_count() const;

 private:
  void add_stage(const ImageLayer& layer, bool normalised);
  void initialise(uint64_t seed);
  torch::Tensor through_stages(torch::Tensor x_BCHW);

  double dropout_;
  std::vector<ParameterShape> shapes_;
  std::vector<torch::nn::Conv2d> stages_;
  std::vector<bool> pools_;  // after the stage of that index
  std::vector<BatchNorm> norms_;
  std::vector<torch::nn::Linear> dense_;  // the last one gives the logits
};
TORCH_MODULE(ImageNetwork);

}  // namespace ddp::train
