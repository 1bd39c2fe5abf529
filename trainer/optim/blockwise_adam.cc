#include "trainer/optim/blockwise_adam.h"

#include <algorithm>
#include <span>

#include "trainer/config/param_groups.h"
#include "trainer/runtime/parallel_for.h"

namespace ddp::train {
namespace {

int64_t blocks_in(int64_t elements) { return (elements + kStateBlock - 1) / kStateBlock; }

torch::Tensor tensor_of(std::span<const float> values, torch::Device device) {
  return torch::tensor(at::ArrayRef<float>(values.data(), values.size())).to(device);
}

/// What depends on the step: float32 scalars on its device.
struct Corrections {
  torch::Tensor step_size, square_root;

  Corrections(const torch::Tensor& step, const AdamNumbers& numbers) {
    const auto count = step.to(torch::kFloat64);
    step_size = (numbers.learning_rate / (1.0 - at::pow(numbers.beta1, count))).to(torch::kFloat32);
    square_root = (1.0 - at::pow(numbers.beta2, count)).sqrt().to(torch::kFloat32);
  }
};

/// Without the corrections.
AdamFactors factors_of(const AdamNumbers& numbers) {
  const auto single = [](double number) { return static_cast<float>(number); };
  const double decay = numbers.weight_decay;
  AdamFactors factors{};
  factors.beta1 = single(numbers.beta1);
  factors.beta2 = single(numbers.beta2);
  factors.rest1 = single(1.0 - numbers.beta1);
  factors.rest2 = single(1.0 - numbers.beta2);
  factors.shrink = single(numbers.decoupled ? 1.0 - numbers.learning_rate * decay : 1.0);
  factors.decay = single(numbers.decoupled ? 0.0 : decay);
  factors.epsilon = single(numbers.epsilon);
  return factors;
}

/// Elements [begin, begin + size) of an average.
class AveragePart {
 public:
  AveragePart(const BlockAverage& average, int64_t begin, int64_t size)
      : all_(average),
        codes_(average.codes.view(-1).narrow(0, begin, size)),
        absmax_(average.absmax.narrow(0, begin / kStateBlock, blocks_in(size))) {}

  torch::Tensor dequantized() const {
    const auto scales = absmax_.unsqueeze(1).expand({-1, kStateBlock}).reshape(-1);
    return all_.values.index_select(0, codes_.to(torch::kInt32))
        .mul_(scales.narrow(0, 0, codes_.numel()));
  }

  /// Nothing changes if `skip`. `least`: of each code.
  void quantize(const torch::Tensor& numbers, const torch::Tensor& least,
                const torch::Tensor& skip) const {
    const int64_t size = numbers.numel();
    const int64_t padding = absmax_.numel() * kStateBlock - size;
    const auto rows = at::constant_pad_nd(numbers, {0, padding}).view({-1, kStateBlock});
    const auto absmax = rows.abs().amax(1);
    const auto scaled = rows * absmax.clamp_min(kLeastAbsmax).reciprocal().unsqueeze(1);
    const auto nearest = at::bucketize(scaled, all_.bounds, /*out_int32=*/true);
    const auto codes = nearest.view(-1).narrow(0, 0, size).maximum(least);
    codes_.copy_(torch::where(skip, codes_, codes.to(torch::kUInt8)));
    absmax_.copy_(torch::where(skip, absmax_, absmax));
  }

 private:
  const BlockAverage& all_;
  torch::Tensor codes_, absmax_;
};

/// In the order of operations of update_blocks().
void update_part(const torch::Tensor& weight, const torch::Tensor& raw_gradient,
                 const AveragePart& exp_avg, const AveragePart& exp_avg_sq, const AdamFactors& f,
                 const Corrections& corrections, const torch::Tensor& skip) {
  const auto gradient = raw_gradient + weight * f.decay;
  const auto m = exp_avg.dequantized().mul_(f.beta1).add_(gradient * f.rest1);
  const auto v = exp_avg_sq.dequantized().mul_(f.beta2).add_((gradient * gradient).mul_(f.rest2));
  const auto divisor = v.sqrt().div_(corrections.square_root).add_(f.epsilon);
  const auto updated = weight * f.shrink - (m / divisor).mul_(corrections.step_size);
  weight.copy_(torch::where(skip, weight, updated));
  exp_avg.quantize(m, torch::zeros({1}, m.options().dtype(torch::kInt32)), skip);
  exp_avg_sq.quantize(v, (v > 0).to(torch::kInt32), skip);
}

}  // namespace

BlockAverage::BlockAverage(const torch::Tensor& parameter, const DynamicMap& map)
    : values(tensor_of(map.values(), parameter.device())),
      bounds(tensor_of(map.bounds(), parameter.device())) {
  const torch::TensorOptions options(parameter.device());
  codes = torch::zeros(parameter.sizes(), options.dtype(torch::kUInt8));
  absmax = torch::zeros({blocks_in(parameter.numel())}, options.dtype(torch::kFloat32));
}

void adam_by_operators(const torch::Tensor& weight, const torch::Tensor& gradient,
                       const BlockAverage& exp_avg, const BlockAverage& exp_avg_sq,
                       const torch::Tensor& step, const torch::Tensor& found_inf,
                       const AdamNumbers& numbers) {
  constexpr int64_t kPart = int64_t{1} << 22;  // elements of intermediate results
  const auto weights = weight.contiguous();
  const auto gradients = gradient.contiguous().view(-1);
  const auto factors = factors_of(numbers);
  const Corrections corrections(step, numbers);
  const auto skip = found_inf.reshape({}) != 0;
  for (int64_t begin = 0; begin < weights.numel(); begin += kPart) {
    const int64_t size = std::min(kPart, weights.numel() - begin);
    update_part(weights.view(-1).narrow(0, begin, size), gradients.narrow(0, begin, size),
                {exp_avg, begin, size}, {exp_avg_sq, begin, size}, factors, corrections, skip);
  }
  if (!weight.is_contiguous()) weight.copy_(weights);
}

void adam_in_blocks(const torch::Tensor& weight, const torch::Tensor& gradient,
                    const BlockAverage& exp_avg, const BlockAverage& exp_avg_sq,
                    const torch::Tensor& step, const torch::Tensor& found_inf,
                    const AdamNumbers& numbers) {
  if (!weight.is_cpu())
    return adam_by_operators(weight, gradient, exp_avg, exp_avg_sq, step, found_inf, numbers);
  if (found_inf.item<float>() != 0.0F) return;
  const auto weights = weight.contiguous();
  const auto gradients = gradient.contiguous();
  auto factors = factors_of(numbers);
  const Corrections corrections(step, numbers);
  factors.step_size = corrections.step_size.item<float>();
  factors.square_root = corrections.square_root.item<float>();
  const AdamBlocks blocks{weights.mutable_data_ptr<float>(),
                          gradients.const_data_ptr<float>(),
                          exp_avg.codes.mutable_data_ptr<uint8_t>(),
                          exp_avg.absmax.mutable_data_ptr<float>(),
                          exp_avg_sq.codes.mutable_data_ptr<uint8_t>(),
                          exp_avg_sq.absmax.mutable_data_ptr<float>(),
                          weights.numel()};
  constexpr int64_t kGrain = 64;  // blocks
  parallel_for(blocks_in(blocks.size), kGrain, at::get_num_threads(),
               [&](int64_t first, int64_t last) { update_blocks(blocks, factors, first, last); });
  if (weight.is_contiguous())
    weight.unsafeGetTensorImpl()->bump_version();  // as torch's operators do
  else
    weight.copy_(weights);
}

}  // namespace ddp::train
