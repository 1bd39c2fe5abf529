#include "trainer/model/cost/image_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trainer/config/config.h"

namespace ddp::train {
namespace {

constexpr double kValueBytes = 4.0;
constexpr double kIndexBytes = 8.0;

/// Values after the last stage.
int64_t add_stages(const ImageConfig& config, const ImageSizes& sizes,
                   std::vector<ImageLayer>& layers) {
  int64_t from = sizes.channels;
  int64_t height = sizes.height;
  int64_t width = sizes.width;
  for (int64_t i = 0; i < config.n_layer; ++i) {
    const int64_t to = config.conv_channels << i;
    const bool pooled = height >= 2 && width >= 2;
    layers.push_back({fmt::format("conv_{}", i), true, from, to, height * width, pooled});
    if (pooled) {
      height /= 2;
      width /= 2;
    }
    from = to;
  }
  return from * height * width;
}

/// Bytes per image.
struct LayerMemory {
  double kept = 0.0;       ///< For the backward pass.
  double workspace = 0.0;  ///< While it is computed backward.
};

LayerMemory memory_of(const ImageLayer& layer, const ImageConfig& config, double value_bytes) {
  const auto outputs = static_cast<double>(layer.outputs * layer.places);
  const double all = outputs * value_bytes;
  LayerMemory memory{all, 2 * all};
  if (layer.convolution && config.batch_norm != BatchNormKind::kOff) memory.workspace += all;
  if (!layer.convolution) {
    if (config.dropout > 0) memory.kept += outputs * (kValueBytes + value_bytes);
    return memory;
  }
  // Batch normalisation keeps its input, in ranks' sync its output in float32 as well.
  if (config.batch_norm != BatchNormKind::kOff) memory.kept += all;
  if (config.batch_norm == BatchNormKind::kSynchronized) memory.kept += outputs * kValueBytes;
  if (layer.pooled) memory.kept += outputs / 4 * (value_bytes + kIndexBytes);
  return memory;
}

/// The maximum that any layer's backward pass needs: what later layers kept is freed by then.
double whole_activations(const Config& config, const ImageSizes& sizes) {
  const double value = config.trainer.use_amp ? 2.0 : kValueBytes;
  const auto images = static_cast<double>(config.trainer.batch_size);
  double kept = 0.0, most = 0.0;
  for (const ImageLayer& layer : image_layers(config.image, sizes)) {
    const LayerMemory memory = memory_of(layer, config.image, value);
    kept += memory.kept;
    most = std::max(most, kept + memory.workspace);
  }
  return images * most;
}

}  // namespace

std::vector<ImageLayer> image_layers(const ImageConfig& config, const ImageSizes& sizes) {
  std::vector<ImageLayer> layers;
  int64_t inputs = sizes.channels * sizes.height * sizes.width;
  int64_t hidden = config.n_layer;
  if (config.network == ImageNetworkKind::kConv) {
    inputs = add_stages(config, sizes, layers);
    hidden = 1;
  }
  for (int64_t i = 0; i < hidden; ++i) {
    layers.push_back({fmt::format("dense_{}", i), false, inputs, config.width});
    inputs = config.width;
  }
  layers.push_back({"head", false, inputs, sizes.classes});
  return layers;
}

std::vector<ParameterPart> image_parameter_parts(const ImageConfig& config,
                                                 const ImageSizes& sizes) {
  std::vector<ParameterPart> parts;
  const bool normalised = config.batch_norm != BatchNormKind::kOff;
  for (const ImageLayer& layer : image_layers(config, sizes)) {
    const int64_t biases = layer.outputs * (layer.convolution && normalised ? 2 : 1);
    parts.push_back({layer.name, layer.weights() + biases});
  }
  return parts;
}

std::vector<ParameterShape> image_parameter_shapes(const ImageConfig& config,
                                                   const ImageSizes& sizes) {
  const bool normalised = config.batch_norm != BatchNormKind::kOff;
  const auto layers = image_layers(config, sizes);
  std::vector<ParameterShape> shapes;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const ImageLayer& layer = layers[i];
    if (!layer.convolution) {
      const bool hidden = i > 0 && i + 1 < layers.size();
      add_layer(shapes, layer.name, {layer.outputs, layer.inputs},
                hidden ? ParameterRole::kHidden : ParameterRole::kLinear);
      continue;
    }
    add_layer(shapes, layer.name, {layer.outputs, layer.inputs, 3, 3}, ParameterRole::kLinear);
    if (!normalised) continue;
    shapes.pop_back();  // its bias is the norm's
    add_layer(shapes, fmt::format("norm_{}", i), {layer.outputs}, ParameterRole::kOther);
  }
  return shapes;
}

double image_flops(const ImageConfig& config, const ImageSizes& sizes) {
  // A product and a sum for each weight, forward and twice backward: to the inputs, to the weights.
  constexpr double kFlopsPerWeight = 6.0;
  double flops = 0.0;
  for (const ImageLayer& layer : image_layers(config, sizes))
    flops +=
        kFlopsPerWeight * static_cast<double>(layer.weights()) * static_cast<double>(layer.places);
  return flops;
}

std::vector<MemoryItem> image_memory_items(const Config& config, const ImageSizes& sizes,
                                           const ComputePlace& place) {
  // The batch that is computed, and those that the loader's threads have ready.
  constexpr double kAhead = 2.0;
  const double batches = 1.0 + kAhead * static_cast<double>(config.trainer.data_loader_workers);
  const auto batch =
      static_cast<double>(config.trainer.batch_size * sizes.channels * sizes.height * sizes.width) *
      kValueBytes;
  return rank_items(config, image_parameter_shapes(config.image, sizes), place,
                    {{"activations", std::llround(whole_activations(config, sizes))},
                     {"batches", std::llround(batches * batch), MemoryKind::kHost}});
}

}  // namespace ddp::train
