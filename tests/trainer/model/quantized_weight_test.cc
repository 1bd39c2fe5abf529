// Weights in 4 and 8 bits: the codes of bitsandbytes, and layers that hold them.
#include "trainer/model/ops/quantized_weight.h"

#include <tuple>
#include <vector>

#include "tests/support/catch.h"

#include "tests/trainer/interop/interop_peer.h"
#include "tests/trainer/test_model.h"
#include "trainer/model/blocks/parallel_layers.h"
#include "trainer/model/lora.h"
#include "trainer/model/ops/cpu/kernels.h"
#include "trainer/model/ops/weight_codec.h"

namespace ddp::train {
namespace {

/// What bitsandbytes made: golden/quantized.py.
const SafetensorsFile& golden() {
  static const SafetensorsFile file(std::string(DDP_TEST_DIR) +
                                    "/model/golden/quantized.safetensors");
  return file;
}

torch::Tensor golden(const std::string& set, const char* name, torch::ScalarType type) {
  return test::read_tensor(golden(), std::string(set).append(".").append(name), type);
}

torch::Tensor golden_values(const std::string& set) {
  return golden(set, "values", set == "edges" ? torch::kFloat32 : torch::kBFloat16)
      .to(torch::kFloat32);
}

torch::Tensor bits_of(const torch::Tensor& numbers) { return numbers.view(torch::kInt32); }
torch::Tensor sums_of_bits(const torch::Tensor& numbers) {
  return bits_of(numbers).to(torch::kInt64).sum(1);
}

torch::Tensor normal_numbers(std::vector<int64_t> sizes, uint64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return torch::randn(sizes, generator, torch::kFloat32);
}

void check_products(const torch::Tensor& ours, const torch::Tensor& reference, double tolerance) {
  REQUIRE(ours.sizes() == reference.sizes());
  const double largest = reference.abs().max().item<double>();
  CHECK((ours - reference).abs().max().item<double>() <= tolerance * largest);
}

}  // namespace

TEST_CASE("NF4 codes, scales and values are bitsandbytes', bit for bit") {
  for (const std::string set : {"edges", "random"}) {
    INFO(set);
    const auto values = golden_values(set);
    const int64_t blocks = values.numel() / kNf4Block;
    std::vector<float> absmax(blocks);
    auto codes = torch::empty({blocks * kNf4Block / 2}, torch::kUInt8);
    quantize_nf4(values.const_data_ptr<float>(), blocks, codes.mutable_data_ptr<uint8_t>(),
                 absmax.data());
    CHECK(torch::equal(codes, golden(set, "codes", torch::kUInt8)));
    // Its mean is torch's, whose last bits depend on the CPU.
    const auto mean = golden(set, "absmax_mean", torch::kFloat32);
    auto absmax_codes = torch::empty({blocks}, torch::kUInt8);
    auto scales = torch::empty({(blocks + kAbsmaxBlock - 1) / kAbsmaxBlock}, torch::kFloat32);
    quantize_absmax(absmax.data(), blocks, mean.item<float>(),
                    absmax_codes.mutable_data_ptr<uint8_t>(), scales.mutable_data_ptr<float>());
    CHECK(torch::equal(absmax_codes, golden(set, "absmax", torch::kUInt8)));
    CHECK(torch::equal(bits_of(scales), bits_of(golden(set, "absmax_scales", torch::kFloat32))));
    const QuantizedWeight weight{codes.view({values.size(0), -1}), absmax_codes, scales,
                                 mean.reshape({})};
    const auto numbers = dequantize(weight, 0, weight.rows());
    CHECK(torch::equal(sums_of_bits(numbers), golden(set, "sums", torch::kInt64)));
    check_products(quantize(values, BaseFormat::kNf4).absmax_mean.view({1}), mean, 1e-6);
  }
}

TEST_CASE("int8 codes, scales and values are bitsandbytes', bit for bit") {
  for (const std::string set : {"edges", "random"}) {
    INFO(set);
    const auto weight = quantize(golden_values(set), BaseFormat::kInt8);
    const auto codes = golden(set, "int8", torch::kInt8);
    CHECK(torch::equal(weight.codes.narrow(0, 0, codes.size(0)), codes));
    CHECK(
        torch::equal(bits_of(weight.absmax), bits_of(golden(set, "int8_absmax", torch::kFloat32))));
    CHECK(torch::equal(sums_of_bits(dequantize(weight, 0, weight.rows())),
                       golden(set, "int8_sums", torch::kInt64)));
  }
}

TEST_CASE("torch's operators, as on a GPU, and every instruction set dequantize to the same bits") {
  for (const auto format : {BaseFormat::kNf4, BaseFormat::kInt8}) {
    const auto weight = quantize(normal_numbers({70, 320}, 1), format);
    const auto expected = bits_of(dequantize_by_operators(weight, 3, 61));
    CHECK(torch::equal(bits_of(dequantize(weight, 3, 61)), expected));
    const auto rows = torch::empty({4, 320});
    const auto steps = weight.is_nf4() ? torch::rand({4 * 320 / kNf4Block}) : weight.absmax;
    const cpu::CodedRows coded{static_cast<const uint8_t*>(weight.codes.const_data_ptr()),
                               steps.const_data_ptr<float>(),
                               weight.is_nf4() ? kNf4Values.data() : nullptr};
    torch::Tensor first;
    for (const cpu::Kernels* kernels : cpu::all_kernels()) {
      INFO(kernels->instructions);
      kernels->decode(coded, rows.mutable_data_ptr<float>(), {0, 4, 320});
      if (!first.defined()) first = rows.clone();
      CHECK(torch::equal(bits_of(rows), bits_of(first)));
      const auto x = normal_numbers({320}, 2);
      const auto y = torch::empty({4});
      kernels->coded_dot(coded, x.const_data_ptr<float>(), y.mutable_data_ptr<float>(),
                         {0, 4, 320});
      check_products(y, rows.mv(x), 1e-5);
    }
  }
}

TEST_CASE("products with quantized weights and their gradients are those of the dequantized ones") {
  // Odd widths are for int8 alone; 5000 rows are several tiles.
  const std::vector<std::tuple<BaseFormat, int64_t, int64_t>> cases = {
      {BaseFormat::kNf4, 200, 192},
      {BaseFormat::kNf4, 5000, 64},
      {BaseFormat::kInt8, 130, 83},
      {BaseFormat::kInt8, 5000, 70}};
  for (const auto& [format, rows, columns] : cases) {
    const auto weight = quantize(normal_numbers({rows, columns}, 1), format);
    const auto plain = dequantize(weight, 0, rows);
    const auto bias = normal_numbers({rows}, 3);
    for (const int64_t tokens : {1, 3, 40}) {
      INFO(rows << " x " << columns << ", " << tokens);
      const auto x = normal_numbers({2, tokens, columns}, 2).requires_grad_();
      const auto y = quantized_linear(x, weight, bias);
      const auto upstream = normal_numbers({2, tokens, rows}, 4);
      check_products(y.detach(), at::linear(x, plain, bias).detach(), 1e-5);
      check_products(torch::autograd::grad({y}, {x}, {upstream})[0], upstream.matmul(plain), 1e-5);
    }
  }
}

TEST_CASE(
    "a layer that holds a quantized weight has no parameter for it, with or without adapter") {
  ColumnLinear column(128, 64, /*with_bias=*/true, LayerOptions{});
  RowLinear row(64, 128, /*with_bias=*/true, LayerOptions{});
  const torch::NoGradGuard no_grad;
  for (AdaptableLinearImpl* layer : {static_cast<AdaptableLinearImpl*>(column.get()),
                                     static_cast<AdaptableLinearImpl*>(row.get())}) {
    layer->weight.copy_(normal_numbers(layer->weight.sizes().vec(), 1));
    layer->bias.copy_(normal_numbers(layer->bias.sizes().vec(), 2));
  }
  const auto x = normal_numbers({2, 5, 128}, 3), residual = normal_numbers({2, 5, 128}, 4);
  const auto pass = [&] {
    const auto inner = column->gelu(x, {}, /*tanh=*/true) + column->in_float32(x, {});
    return row->add_to(residual, inner, {}).sum();
  };
  for (AdaptableLinearImpl* layer : {static_cast<AdaptableLinearImpl*>(column.get()),
                                     static_cast<AdaptableLinearImpl*>(row.get())}) {
    const auto weight = quantize(layer->weight, BaseFormat::kNf4);
    layer->weight.copy_(dequantize(weight, 0, weight.rows()));
  }
  const auto expected = pass();
  for (AdaptableLinearImpl* layer : {static_cast<AdaptableLinearImpl*>(column.get()),
                                     static_cast<AdaptableLinearImpl*>(row.get())}) {
    const auto merged = layer->merged_weight();
    layer->hold(quantize(layer->weight, BaseFormat::kNf4));
    CHECK(layer->parameters().size() == 1);
    CHECK(layer->buffers().size() == 4);
    check_products(layer->merged_weight(), merged, 1e-2);  // its absmax are rounded again
  }
  check_products(pass(), expected, 2e-2);
  const auto before = pass();
  column->add_adapter({.rank = 2, .targets = {}}, at::make_generator<at::CPUGeneratorImpl>(1));
  row->add_adapter({.rank = 2, .targets = {}}, at::make_generator<at::CPUGeneratorImpl>(1));
  check_products(pass(), before, 1e-6);
}

TEST_CASE("quantized_bytes() counts what a quantized weight takes") {
  for (const auto format : {BaseFormat::kNf4, BaseFormat::kInt8}) {
    const auto weight = quantize(normal_numbers({96, 640}, 1), format);
    int64_t bytes = 0;
    for (const auto* part :
         {&weight.codes, &weight.absmax, &weight.absmax_scales, &weight.absmax_mean})
      bytes += part->defined() ? static_cast<int64_t>(part->nbytes()) : 0;
    CHECK(quantized_bytes({"h.0.mlp.weight", {96, 640}, ParameterRole::kHidden}, format) == bytes);
    CHECK(quantized_bytes({"h.0.norm.weight", {640}, ParameterRole::kOther}, format) == 0);
    CHECK(quantized_bytes({"wte.weight", {96, 640}, ParameterRole::kEmbedding}, format) == 0);
  }
}

}  // namespace ddp::train
