#include "trainer/model/image_network.h"

#include <fmt/format.h>

#include <cmath>

namespace ddp::train {
namespace nn = torch::nn;

namespace {

/// Uniform with variance 2 / inputs.
void he_uniform(const torch::Tensor& weight, at::Generator& generator) {
  const int64_t inputs = weight.numel() / weight.size(0);
  const double bound = std::sqrt(6.0 / static_cast<double>(inputs));
  weight.uniform_(-bound, bound, generator);
}

}  // namespace

ImageNetworkImpl::ImageNetworkImpl(const ImageConfig& config, const Sizes& sizes, uint64_t seed)
    : dropout_(config.dropout), shapes_(image_parameter_shapes(config, sizes)) {
  for (const ImageLayer& layer : image_layers(config, sizes)) {
    if (layer.convolution) {
      add_stage(layer, config.batch_norm != BatchNormKind::kOff);
    } else {
      dense_.emplace_back(register_module(layer.name, nn::Linear(layer.inputs, layer.outputs)));
    }
  }
  initialise(seed);
}

void ImageNetworkImpl::add_stage(const ImageLayer& layer, bool normalised) {
  const auto options =
      nn::Conv2dOptions(layer.inputs, layer.outputs, 3).padding(1).bias(!normalised);
  stages_.emplace_back(register_module(layer.name, nn::Conv2d(options)));
  if (normalised) {
    norms_.emplace_back(
        register_module(fmt::format("norm_{}", norms_.size()), BatchNorm(layer.outputs)));
  }
  pools_.push_back(layer.pooled);
}

void ImageNetworkImpl::initialise(uint64_t seed) {
  const torch::NoGradGuard no_grad;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  for (auto& stage : stages_) {
    he_uniform(stage->weight, generator);
    if (stage->bias.defined()) stage->bias.zero_();
  }
  for (auto& layer : dense_) {
    he_uniform(layer->weight, generator);
    layer->bias.zero_();
  }
}

torch::Tensor ImageNetworkImpl::through_stages(torch::Tensor x_BCHW) {
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    x_BCHW = stages_[i](x_BCHW);
    if (!norms_.empty()) x_BCHW = norms_[i](x_BCHW);
    x_BCHW = torch::relu(x_BCHW);
    if (pools_[i]) x_BCHW = torch::max_pool2d(x_BCHW, 2);
  }
  return x_BCHW;
}

torch::Tensor ImageNetworkImpl::forward(const torch::Tensor& x_BCHW) {
  auto x = through_stages(x_BCHW).flatten(1);
  for (std::size_t i = 0; i + 1 < dense_.size(); ++i)
    x = torch::dropout(torch::relu(dense_[i](x)), dropout_, is_training());
  return dense_.back()(x);
}

std::vector<ImageNetworkImpl::NetworkParameter> ImageNetworkImpl::network_parameters() const {
  const auto tensors = named_parameters();
  std::vector<NetworkParameter> result;
  for (const ParameterShape& shape : shapes_)
    result.push_back({shape.name, tensors[shape.name], shape.role});
  return result;
}

int64_t ImageNetworkImpl::parameter_count() const {
  int64_t count = 0;
  for (const torch::Tensor& parameter : parameters()) count += parameter.numel();
  return count;
}

}  // namespace ddp::train
