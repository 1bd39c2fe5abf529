#include "trainer/model/image_network.h"

#include <fmt/format.h>

#include <cmath>

namespace ddp::train {
namespace nn = torch::nn;

namespace {

/// A product and a sum for each weight, forward and twice backward: to the inputs, to the weights.
constexpr double kFlopsPerWeight = 6.0;

/// Uniform with variance 2 / inputs.
void he_uniform(const torch::Tensor& weight, at::Generator& generator) {
  const int64_t inputs = weight.numel() / weight.size(0);
  const double bound = std::sqrt(6.0 / static_cast<double>(inputs));
  weight.uniform_(-bound, bound, generator);
}

}  // namespace

ImageNetworkImpl::ImageNetworkImpl(const ImageConfig& config, const Sizes& sizes, uint64_t seed)
    : dropout_(config.dropout) {
  int64_t inputs = sizes.channels * sizes.height * sizes.width;
  int64_t hidden = config.n_layer;
  if (config.network == ImageNetworkKind::kConv) {
    inputs = add_stages(config, sizes);
    hidden = 1;
  }
  for (int64_t i = 0; i < hidden; ++i) {
    add_dense(inputs, config.width, fmt::format("dense_{}", i));
    inputs = config.width;
  }
  add_dense(inputs, sizes.classes, "head");
  initialise(seed);
}

/// Returns the number of values behind the last stage.
int64_t ImageNetworkImpl::add_stages(const ImageConfig& config, const Sizes& sizes) {
  int64_t from = sizes.channels;
  int64_t height = sizes.height;
  int64_t width = sizes.width;
  for (int64_t i = 0; i < config.n_layer; ++i) {
    const int64_t to = config.conv_channels << i;
    const bool normalised = config.batch_norm != BatchNormKind::kOff;
    const auto options = nn::Conv2dOptions(from, to, 3).padding(1).bias(!normalised);
    stages_.emplace_back(register_module(fmt::format("conv_{}", i), nn::Conv2d(options)));
    if (normalised) norms_.emplace_back(register_module(fmt::format("norm_{}", i), BatchNorm(to)));
    flops_ += kFlopsPerWeight * static_cast<double>(stages_.back()->weight.numel()) *
              static_cast<double>(height * width);
    pools_.push_back(height >= 2 && width >= 2);
    if (pools_.back()) {
      height /= 2;
      width /= 2;
    }
    from = to;
  }
  return from * height * width;
}

void ImageNetworkImpl::add_dense(int64_t inputs, int64_t outputs, const std::string& name) {
  dense_.emplace_back(register_module(name, nn::Linear(inputs, outputs)));
  flops_ += kFlopsPerWeight * static_cast<double>(inputs * outputs);
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
  std::vector<NetworkParameter> result;
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    const std::string name = fmt::format("conv_{}.", i);
    result.push_back({name + "weight", stages_[i]->weight, true});
    if (stages_[i]->bias.defined()) result.push_back({name + "bias", stages_[i]->bias});
    if (norms_.empty()) continue;
    result.push_back({fmt::format("norm_{}.weight", i), norms_[i]->weight});
    result.push_back({fmt::format("norm_{}.bias", i), norms_[i]->bias});
  }
  for (std::size_t i = 0; i < dense_.size(); ++i) {
    const bool last = i + 1 == dense_.size();
    const std::string name = last ? "head." : fmt::format("dense_{}.", i);
    const bool between = !last && (i > 0 || !stages_.empty());
    result.push_back({name + "weight", dense_[i]->weight, true, between});
    result.push_back({name + "bias", dense_[i]->bias});
  }
  return result;
}

int64_t ImageNetworkImpl::parameter_count() const {
  int64_t count = 0;
  for (const auto& parameter : network_parameters()) count += parameter.tensor.numel();
  return count;
}

}  // namespace ddp::train
