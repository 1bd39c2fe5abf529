// The GPU's kernels for weights in 4 and 8 bits and for Llama's blocks, as the host's compiler
// makes them of the same source, with real threads as a block's.
#include <torch/torch.h>

#include <algorithm>
#include <vector>

#include "tests/support/catch.h"

#include "trainer/model/ops/quantized_weight.h"
#include "trainer/model/ops/weight_codec.h"
#include "trainer/runtime/dynamic_map.h"

#include "trainer/model/ops/cuda/host_cuda.h"

#include "trainer/model/ops/cuda/kernels.cu"

#include "trainer/model/ops/cuda/coded.cu"
#include "trainer/model/ops/cuda/llama.cu"

namespace ddp::test {
namespace {

using train::BaseFormat;
using train::QuantizedWeight;

bfloat16* halves(const torch::Tensor& x) { return reinterpret_cast<bfloat16*>(x.data_ptr()); }

Coded coded_from(const QuantizedWeight& weight, int64_t row) {
  Coded coded{};
  coded.codes =
      static_cast<const uint8_t*>(weight.codes.const_data_ptr()) + row * weight.codes.size(1);
  coded.absmax = weight.absmax.const_data_ptr();
  if (weight.absmax_scales.defined()) {
    coded.absmax_scales = weight.absmax_scales.const_data_ptr<float>();
    coded.absmax_mean = weight.absmax_mean.const_data_ptr<float>();
  }
  coded.columns = static_cast<int>(weight.columns());
  coded.four_bits = weight.is_nf4() ? 1 : 0;
  coded.first_block = weight.is_nf4() ? row * weight.columns() / train::kNf4Block : row;
  std::copy(train::kNf4Values.begin(), train::kNf4Values.end(), coded.values);
  const auto& map = train::DynamicMap::signed_map().values();
  std::copy(map.begin(), map.end(), coded.map);
  return coded;
}

/// Some rows with magnitudes far above float16's and far below its normal numbers.
QuantizedWeight weight_of(BaseFormat format, int64_t rows, int64_t columns) {
  auto values = torch::randn({rows, columns});
  values[1] *= 1e-6;
  values[2] *= 1e5;
  return train::quantize(values, format);
}

QuantizedWeight with_plain_absmax(QuantizedWeight weight) {
  const int64_t blocks = weight.absmax.numel();
  auto absmax = torch::empty({blocks});
  train::dequantize_absmax(
      weight.absmax.const_data_ptr<uint8_t>(), weight.absmax_scales.const_data_ptr<float>(),
      *weight.absmax_mean.const_data_ptr<float>(), 0, blocks, absmax.mutable_data_ptr<float>());
  return {weight.codes, absmax, {}, {}};
}

}  // namespace

TEST_CASE("the GPU's numbers of a weight in 4 or 8 bits are torch's operators', bit for bit") {
  torch::manual_seed(3);
  const bool nf4 = GENERATE(true, false);
  const unsigned threads = GENERATE(1U, 64U);
  const auto type = GENERATE(torch::kFloat32, torch::kBFloat16, torch::kHalf);
  INFO((nf4 ? "nf4, " : "int8, ") << threads << " threads, " << torch::toString(type));
  // More than one block of 256 absmax codes; rows from the middle of one.
  const auto weight = weight_of(nf4 ? BaseFormat::kNf4 : BaseFormat::kInt8, 90, 192);
  const auto check = [&](const QuantizedWeight& given, int64_t first, int64_t last) {
    const auto rows = torch::full({last - first, given.columns()}, 7.0, type);
    const Coded coded = coded_from(given, first);
    const int kind = type == torch::kFloat32 ? 0 : type == torch::kBFloat16 ? 1 : 2;
    host_cuda::run(static_cast<unsigned>((rows.numel() + 1023) / 1024), threads, 16 * sizeof(float),
                   [&] { ddp_dequantize(coded, rows.data_ptr(), rows.numel(), 1024, kind); });
    CHECK(torch::equal(rows, train::dequantize_by_operators(given, first, last).to(type)));
  };
  check(weight, 0, 90);
  check(weight, 1, 88);
  if (nf4) check(with_plain_absmax(weight), 1, 88);
}

TEST_CASE("the GPU's products of a few rows with a weight in 4 or 8 bits are near float64's") {
  torch::manual_seed(5);
  const bool nf4 = GENERATE(true, false);
  const unsigned threads = GENERATE(1U, 64U);
  const bool in_bfloat16 = GENERATE(true, false);
  const int64_t count = GENERATE(1, 3, 4);
  INFO((nf4 ? "nf4, " : "int8, ") << threads << " threads, " << count << " rows");
  const auto weight =
      train::quantize(torch::randn({13, 576}), nf4 ? BaseFormat::kNf4 : BaseFormat::kInt8);
  const auto type = in_bfloat16 ? torch::kBFloat16 : torch::kFloat32;
  const auto x = torch::randn({count, 576}).to(type);
  const auto y = torch::full({count, 13}, 777.0, type);
  const Coded coded = coded_from(weight, 0);
  host_cuda::run(2, threads, 16 * sizeof(float), [&] {
    ddp_coded_product(coded, x.const_data_ptr(), y.data_ptr(), static_cast<int>(count), 13,
                      in_bfloat16 ? 1 : 0);
  });
  const auto exact =
      at::mm(x.to(torch::kFloat64), train::dequantize(weight, 0, 13).to(torch::kFloat64).t());
  CHECK(torch::allclose(y.to(torch::kFloat64), exact, in_bfloat16 ? 0.00391 : 1e-5, 1e-4));
}

TEST_CASE("the GPU's SwiGLU and its gradients are torch's") {
  torch::manual_seed(7);
  const unsigned threads = GENERATE(1U, 64U);
  const auto random = [] { return (torch::randn({3, 104}) * 4).to(torch::kBFloat16); };
  const auto gate = random(), up = random(), dy = random();
  gate[0][0] = -100.0;  // silu's limits
  gate[0][1] = 100.0;
  const auto y = torch::full_like(gate, 7.0), dgate = y.clone(), dup = y.clone();
  host_cuda::run(4, threads, 0,
                 [&] { ddp_swiglu(halves(gate), halves(up), halves(y), gate.numel(), 80); });
  host_cuda::run(4, threads, 0, [&] {
    ddp_swiglu_backward(halves(dy), halves(gate), halves(up), halves(dgate), halves(dup),
                        gate.numel(), 80);
  });
  const auto leaf = [](const torch::Tensor& x) {
    return x.to(torch::kFloat64).detach().set_requires_grad(true);
  };
  const auto exact_gate = leaf(gate), exact_up = leaf(up);
  const auto exact = at::silu(exact_gate) * exact_up;
  exact.backward(dy.to(torch::kFloat64));
  const auto agrees = [](const torch::Tensor& ours, const torch::Tensor& theirs) {
    return torch::allclose(ours.to(torch::kFloat64), theirs, 0.00391, 1e-6);
  };
  CHECK(agrees(y, exact.detach()));
  CHECK(agrees(dgate, exact_gate.grad()));
  CHECK(agrees(dup, exact_up.grad()));
}

TEST_CASE("the GPU turns the heads of queries and keys by their positions, and gradients back") {
  torch::manual_seed(9);
  const unsigned threads = GENERATE(1U, 64U);
  const bool each_sequence = GENERATE(false, true);
  constexpr int64_t B = 2, T = 5, H = 4, K = 2, D = 32;
  const auto angles = torch::randn({each_sequence ? B : 1, T, D / 2}) * 3;
  const auto cos = angles.cos(), sin = angles.sin();
  const auto q = torch::randn({B, T, H, D}).to(torch::kBFloat16);
  const auto k = torch::randn({B, T, K, D}).to(torch::kBFloat16);
  const auto turned = [&](const torch::Tensor& x, double way) {
    const auto halves = x.to(torch::kFloat64).chunk(2, -1);
    const auto c = cos.unsqueeze(2).to(torch::kFloat64), s = sin.unsqueeze(2) * way;
    return torch::cat({halves[0] * c - halves[1] * s, halves[1] * c + halves[0] * s}, -1);
  };
  for (const float way : {1.0F, -1.0F}) {
    const auto to_q = torch::full_like(q, 7.0), to_k = torch::full_like(k, 7.0);
    host_cuda::run(3, threads, 0, [&] {
      ddp_rotate(halves(q), halves(k), cos.const_data_ptr<float>(), sin.const_data_ptr<float>(),
                 halves(to_q), halves(to_k), B * T, H, K, D, cos.numel() / (D / 2), 48, way);
    });
    CHECK(torch::allclose(to_q.to(torch::kFloat64), turned(q, way), 0.00391, 1e-6));
    CHECK(torch::allclose(to_k.to(torch::kFloat64), turned(k, way), 0.00391, 1e-6));
  }
}

}  // namespace ddp::test
