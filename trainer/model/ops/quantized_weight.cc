#include "trainer/model/ops/quantized_weight.h"

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>

#include <algorithm>
#include <map>
#include <vector>

#include "trainer/model/ops/cpu/kernels.h"
#include "trainer/model/ops/gpu_kernels.h"
#include "trainer/model/ops/weight_codec.h"
#include "trainer/runtime/dynamic_map.h"
#include "trainer/runtime/parallel_for.h"

namespace ddp::train {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

template <typename Table>
torch::Tensor tensor_of(const Table& table, torch::Device device) {
  return torch::tensor(at::ArrayRef<float>(table.data(), table.size())).to(device);
}

int64_t blocks_before(const QuantizedWeight& weight, int64_t row) {
  return weight.is_nf4() ? row * weight.columns() / kNf4Block : row;
}

/// Scales of the codes in rows [first, last), from their place in absmax on.
void scales_on_cpu(const QuantizedWeight& weight, int64_t first, int64_t last, float* scales) {
  const int64_t begin = blocks_before(weight, first), end = blocks_before(weight, last);
  if (weight.absmax_scales.defined()) {
    dequantize_absmax(weight.absmax.const_data_ptr<uint8_t>(),
                      weight.absmax_scales.const_data_ptr<float>(),
                      *weight.absmax_mean.const_data_ptr<float>(), begin, end, scales);
  } else {
    std::copy_n(weight.absmax.const_data_ptr<float>() + begin, end - begin, scales);
  }
}

/// Calls work(coded, first, last) on torch's threads for rows [first, last) of a part of
/// `weight` that begins with row `begin`; `coded` begins with row `first`.
template <typename Work>
void by_coded_rows(const QuantizedWeight& weight, int64_t begin, int64_t end, const Work& work) {
  constexpr int64_t kGrain = 16;
  const auto* const codes = static_cast<const uint8_t*>(weight.codes.const_data_ptr());
  parallel_for(end - begin, kGrain, at::get_num_threads(), [&](int64_t first, int64_t last) {
    std::vector<float> scales(static_cast<std::size_t>(blocks_before(weight, last - first)));
    scales_on_cpu(weight, begin + first, begin + last, scales.data());
    work(cpu::CodedRows{codes + (begin + first) * weight.codes.size(1), scales.data(),
                        weight.is_nf4() ? kNf4Values.data() : nullptr},
         first, last);
  });
}

void decode_rows(const QuantizedWeight& weight, int64_t begin, int64_t end, float* out) {
  const int64_t columns = weight.columns();
  by_coded_rows(weight, begin, end, [&](cpu::CodedRows coded, int64_t first, int64_t last) {
    cpu::kernels().decode(coded, out + first * columns, {0, last - first, columns});
  });
}

/// x [n, columns], float32 on a CPU -> y [n, rows]: reads each code once.
void products_of_few(const torch::Tensor& x, const QuantizedWeight& weight,
                     const torch::Tensor& y) {
  const auto rows = x.contiguous();
  const auto* const inputs = rows.const_data_ptr<float>();
  auto* const outputs = y.mutable_data_ptr<float>();
  by_coded_rows(weight, 0, weight.rows(), [&](cpu::CodedRows coded, int64_t first, int64_t last) {
    for (int64_t i = 0; i < x.size(0); ++i) {
      cpu::kernels().coded_dot(coded, inputs + i * weight.columns(),
                               outputs + i * weight.rows() + first,
                               {0, last - first, weight.columns()});
    }
  });
}

/// Rows in the type, on a CPU. Their place stays with the thread: freed, it would be cut up by the
/// activations that follow, and the next layer would take a new one.
torch::Tensor rows_of_thread(int64_t rows, int64_t columns, torch::ScalarType type) {
  static thread_local std::map<torch::ScalarType, torch::Tensor> kept;
  const c10::InferenceMode no_inference(false);  // a training may come after a generation
  torch::Tensor& place = kept[type];
  if (!place.defined() || place.numel() < rows * columns)
    place = torch::empty({rows * columns}, type);
  return place.narrow(0, 0, rows * columns).view({rows, columns});
}

/// As dequantize(), for use until the thread's next call.
torch::Tensor dequantized_tile(const QuantizedWeight& weight, int64_t first, int64_t last,
                               torch::ScalarType type) {
  if (gpu::takes_codes(weight)) return gpu::dequantize(weight, first, last, type);
  if (!weight.codes.is_cpu()) return dequantize_by_operators(weight, first, last).to(type);
  const auto rows = rows_of_thread(last - first, weight.columns(), torch::kFloat32);
  decode_rows(weight, first, last, rows.mutable_data_ptr<float>());
  if (type == torch::kFloat32) return rows;
  return rows_of_thread(last - first, weight.columns(), type).copy_(rows);
}

/// Calls work(first, last, rows) for all rows of `weight`, some at a time in the type of `like`.
template <typename Work>
void by_tiles(const QuantizedWeight& weight, const torch::Tensor& like, const Work& work) {
  constexpr int64_t kOfCpu = int64_t{1} << 18, kOfGpu = int64_t{1} << 24;  // elements
  constexpr int64_t kLeastRows = 64;
  const int64_t rows = std::max(kLeastRows, (like.is_cpu() ? kOfCpu : kOfGpu) / weight.columns());
  for (int64_t first = 0; first < weight.rows(); first += rows) {
    const int64_t last = std::min(weight.rows(), first + rows);
    work(first, last, dequantized_tile(weight, first, last, like.scalar_type()));
  }
}

bool takes_coded_product(const torch::Tensor& x, const QuantizedWeight& weight) {
  const auto type = x.scalar_type();
  return (type == torch::kFloat32 || type == torch::kBFloat16) &&
         x.numel() <= gpu::kMostCodedRows * x.size(-1) && gpu::takes_codes(weight);
}

struct QuantizedProduct : torch::autograd::Function<QuantizedProduct> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x,
                               const QuantizedWeight& weight) {
    context->save_for_backward(
        {weight.codes, weight.absmax, weight.absmax_scales, weight.absmax_mean});
    if (takes_coded_product(x, weight)) return gpu::coded_product(x.contiguous(), weight);
    auto shape = x.sizes().vec();
    shape.back() = weight.rows();
    const auto flat = x.reshape({-1, x.size(-1)});
    auto y = torch::empty(shape, x.options());  // no view: what follows may add to it in place
    const auto all = y.view({flat.size(0), weight.rows()});
    if (x.is_cpu() && x.scalar_type() == torch::kFloat32 && flat.size(0) <= gpu::kMostCodedRows) {
      products_of_few(flat, weight, all);
      return y;
    }
    by_tiles(weight, x, [&](int64_t first, int64_t last, const torch::Tensor& rows) {
      auto part = all.narrow(1, first, last - first);
      at::mm_out(part, flat, rows.t());
    });
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const QuantizedWeight weight{saved[0], saved[1], saved[2], saved[3]};
    const auto& dy = gradients[0];
    const auto flat = dy.reshape({-1, dy.size(-1)});
    auto dx = torch::zeros({flat.size(0), weight.columns()}, dy.options().dtype(torch::kFloat32));
    by_tiles(weight, dy, [&](int64_t first, int64_t last, const torch::Tensor& rows) {
      const auto part = flat.narrow(1, first, last - first);
      if (dy.scalar_type() == torch::kFloat32)
        dx.addmm_(part, rows);
      else
        dx.add_(at::mm(part, rows));
    });
    auto shape = dy.sizes().vec();
    shape.back() = weight.columns();
    return {dx.to(dy.scalar_type()).view(shape), {}};
  }
};

QuantizedWeight quantize_to_nf4(const torch::Tensor& values) {
  constexpr int64_t kGrain = 1024;  // blocks
  const int64_t blocks = values.numel() / kNf4Block;
  QuantizedWeight weight;
  weight.codes = torch::empty({values.size(0), values.size(1) / 2}, torch::kUInt8);
  const auto absmax = torch::empty({blocks}, torch::kFloat32);
  parallel_for(blocks, kGrain, at::get_num_threads(), [&](int64_t first, int64_t last) {
    quantize_nf4(values.const_data_ptr<float>() + first * kNf4Block, last - first,
                 weight.codes.mutable_data_ptr<uint8_t>() + first * kNf4Block / 2,
                 absmax.mutable_data_ptr<float>() + first);
  });
  weight.absmax = torch::empty({blocks}, torch::kUInt8);
  weight.absmax_scales =
      torch::empty({(blocks + kAbsmaxBlock - 1) / kAbsmaxBlock}, torch::kFloat32);
  weight.absmax_mean = absmax.mean();
  quantize_absmax(absmax.const_data_ptr<float>(), blocks, weight.absmax_mean.item<float>(),
                  weight.absmax.mutable_data_ptr<uint8_t>(),
                  weight.absmax_scales.mutable_data_ptr<float>());
  return weight;
}

QuantizedWeight quantize_to_int8(const torch::Tensor& values) {
  QuantizedWeight weight{torch::empty(values.sizes(), torch::kInt8),
                         torch::empty({values.size(0)}, torch::kFloat32),
                         {},
                         {}};
  quantize_int8(values.const_data_ptr<float>(), values.size(0), values.size(1),
                weight.codes.mutable_data_ptr<int8_t>(), weight.absmax.mutable_data_ptr<float>());
  return weight;
}

}  // namespace

QuantizedWeight quantize(const torch::Tensor& values, BaseFormat format) {
  const torch::NoGradGuard no_grad;
  const auto numbers = values.to(torch::kFloat32).contiguous();
  return format == BaseFormat::kNf4 ? quantize_to_nf4(numbers) : quantize_to_int8(numbers);
}

torch::Tensor dequantize(const QuantizedWeight& weight, int64_t first, int64_t last) {
  if (gpu::takes_codes(weight)) return gpu::dequantize(weight, first, last, torch::kFloat32);
  if (!weight.codes.is_cpu()) return dequantize_by_operators(weight, first, last);
  auto rows = torch::empty({last - first, weight.columns()}, torch::kFloat32);
  decode_rows(weight, first, last, rows.mutable_data_ptr<float>());
  return rows;
}

torch::Tensor dequantize_by_operators(const QuantizedWeight& weight, int64_t first, int64_t last) {
  const torch::NoGradGuard no_grad;
  const auto device = weight.codes.device();
  const int64_t begin = blocks_before(weight, first);
  const int64_t blocks = blocks_before(weight, last) - begin;
  const auto codes = weight.codes.narrow(0, first, last - first);
  auto scales = weight.absmax.narrow(0, begin, blocks);
  if (!weight.is_nf4()) return codes.to(torch::kFloat32) * scales.unsqueeze(1) * cpu::kEightBitStep;
  if (weight.absmax_scales.defined()) {
    const auto map = tensor_of(DynamicMap::signed_map().values(), device);
    const auto block = torch::arange(begin, begin + blocks, scales.options().dtype(torch::kInt64));
    scales = map.index_select(0, scales.to(torch::kInt32)) *
                 weight.absmax_scales.index_select(0, block.floor_divide(kAbsmaxBlock)) +
             weight.absmax_mean;
  }
  const auto halves = torch::stack({codes.bitwise_right_shift(4), codes.bitwise_and(15)}, -1);
  const auto values =
      tensor_of(kNf4Values, device).index_select(0, halves.view(-1).to(torch::kInt32));
  return (values.view({-1, kNf4Block}) * scales.unsqueeze(1))
      .view({last - first, weight.columns()});
}

torch::Tensor quantized_linear(const torch::Tensor& x, const QuantizedWeight& weight,
                               const torch::Tensor& bias) {
  const auto device = x.device().type();
  const bool casts = at::autocast::is_autocast_enabled(device);
  const auto input = casts ? x.to(at::autocast::get_autocast_dtype(device)) : x;
  auto y = QuantizedProduct::apply(input, weight);
  return bias.defined() ? y.add_(bias.to(y.scalar_type())) : y;
}

}  // namespace ddp::train
