#include "trainer/model/image_network.h"

#include "tests/support/catch.h"

namespace ddp::train {
namespace {

ImageConfig small_network(ImageNetworkKind kind, int64_t n_layer,
                          BatchNormKind norm = BatchNormKind::kOff) {
  ImageConfig config;
  config.network = kind;
  config.n_layer = n_layer;
  config.width = 10;
  config.conv_channels = 4;
  config.batch_norm = norm;
  return config;
}

const std::vector<ImageConfig>& networks() {
  static const std::vector<ImageConfig> all = {
      small_network(ImageNetworkKind::kDense, 1), small_network(ImageNetworkKind::kDense, 3),
      small_network(ImageNetworkKind::kConv, 1), small_network(ImageNetworkKind::kConv, 4),
      small_network(ImageNetworkKind::kConv, 2, BatchNormKind::kLocal)};
  return all;
}

torch::Tensor weight_of(const ImageNetwork& network, const std::string& name) {
  for (const auto& parameter : network->network_parameters())
    if (parameter.name == name) return parameter.tensor;
  FAIL("no parameter " << name);
  return {};
}

}  // namespace

TEST_CASE("every network gives a logit for each class, whatever the size of the images") {
  for (const ImageConfig& config : networks()) {
    for (const auto& [height, width] : {std::pair{8, 8}, {7, 5}, {1, 1}, {1, 9}, {3, 2}}) {
      INFO(height << "x" << width << ", " << config.n_layer << " layers");
      ImageNetwork network(config, ImageSizes{3, height, width, 6}, 1);
      network->eval();
      const auto logits = network(torch::zeros({2, 3, height, width}));
      CHECK(logits.sizes() == torch::IntArrayRef{2, 6});
      CHECK(torch::isfinite(logits).all().item<bool>());
    }
  }
}

TEST_CASE("the arithmetic of an estimate counts the parameters that a network has") {
  for (const ImageConfig& config : networks()) {
    const ImageSizes sizes{1, 9, 7, 6};
    const ImageNetwork network(config, sizes, 1);
    CHECK(total_of(image_parameter_parts(config, sizes)) == network->parameter_count());
  }
}

TEST_CASE("channels double from stage to stage, and the image halves while it can") {
  const ImageNetwork network(small_network(ImageNetworkKind::kConv, 3), ImageSizes{1, 5, 4, 2}, 1);
  CHECK(weight_of(network, "conv_0.weight").sizes() == torch::IntArrayRef{4, 1, 3, 3});
  CHECK(weight_of(network, "conv_1.weight").sizes() == torch::IntArrayRef{8, 4, 3, 3});
  CHECK(weight_of(network, "conv_2.weight").sizes() == torch::IntArrayRef{16, 8, 3, 3});
  // 5x4 -> 2x2 -> 1x1, which the last stage leaves.
  CHECK(weight_of(network, "dense_0.weight").sizes() == torch::IntArrayRef{10, 16});
  CHECK(weight_of(network, "head.weight").sizes() == torch::IntArrayRef{2, 10});
}

TEST_CASE("operations are six for each weight at each pixel that it is used at") {
  const ImageSizes sizes{1, 6, 6, 3};
  CHECK(image_flops(small_network(ImageNetworkKind::kDense, 1), sizes) == 6.0 * (36 * 10 + 10 * 3));
  CHECK(image_flops(small_network(ImageNetworkKind::kConv, 1), sizes) ==
        6.0 * (9 * 4 * 36 + 4 * 9 * 10 + 10 * 3));
}

TEST_CASE("weights are a function of the seed, uniform with He's variance") {
  ImageConfig config = small_network(ImageNetworkKind::kDense, 1);
  config.width = 400;
  const ImageSizes sizes{1, 20, 20, 3};
  const auto drawn = [&](uint64_t seed) {
    return weight_of(ImageNetwork(config, sizes, seed), "dense_0.weight");
  };
  CHECK(torch::equal(drawn(1), drawn(1)));
  CHECK(!torch::equal(drawn(1), drawn(2)));
  CHECK(drawn(1).var().item<double>() == Approx(2.0 / 400).epsilon(0.02));
  CHECK(drawn(1).abs().max().item<double>() <= std::sqrt(6.0 / 400));
}

}  // namespace ddp::train
