#include "tests/support/fake_cuda/numerics/account.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "tests/support/fake_cuda/fake_cuda.h"

namespace ddp::test::fake_cuda {
namespace {

using c10::IValue;

/// Bytes in memory: what a broadcast repeats is stored once.
uint64_t bytes_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cuda()) return 0;
  uint64_t elements = 1;
  for (int64_t i = 0; i < tensor.dim(); ++i)
    elements *= tensor.stride(i) == 0 ? 1 : static_cast<uint64_t>(tensor.size(i));
  return elements * tensor.element_size();
}
uint64_t bytes_of(const IValue& value) {
  if (value.isTensor()) return bytes_of(value.toTensor());
  uint64_t bytes = 0;
  if (value.isTensorList())
    for (const at::Tensor& tensor : value.toTensorVector()) bytes += bytes_of(tensor);
  return bytes;
}

/// Bytes of the arguments that an operator without results changes; of optimizers' gradients only
/// with a scale.
uint64_t written_bytes(const c10::FunctionSchema& schema, const std::vector<IValue>& arguments) {
  uint64_t bytes = 0;
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    const bool written = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    if (written && argument.name() != "grads") bytes += bytes_of(arguments[i]);
  }
  return bytes;
}

/// Operations of products and attention; 0 for all other operators.
uint64_t flops_of(const std::string& name, const std::vector<IValue>& arguments) {
  const auto of_product = [&arguments](std::size_t first) {
    const at::Tensor& a = arguments[first].toTensor();
    return 2 * static_cast<uint64_t>(a.numel()) *
           static_cast<uint64_t>(arguments[first + 1].toTensor().size(-1));
  };
  const auto of_causal_attention =
      [&arguments](std::size_t query) {  // half of all pairs, two products
        const at::Tensor& q = arguments[query].toTensor();
        return 2 * static_cast<uint64_t>(q.numel()) *
               static_cast<uint64_t>(arguments[query + 1].toTensor().size(-2));
      };
  if (name == "aten::mm" || name == "aten::bmm") return of_product(0);
  if (name == "aten::addmm" || name == "aten::baddbmm" || name == "aten::_addmm_activation")
    return of_product(1);
  if (name == "aten::_scaled_dot_product_flash_attention") return of_causal_attention(0);
  if (name == "aten::_scaled_dot_product_flash_attention_backward")
    return of_causal_attention(1) * 5 / 2;
  return 0;
}

}  // namespace

void account(const c10::OperatorHandle& op, const std::vector<IValue>& arguments,
             const torch::jit::Stack& stack) {
  const auto& schema = op.schema();
  uint64_t bytes = 0;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!schema.arguments()[i].is_out()) bytes += bytes_of(arguments[i]);
  }
  const std::size_t results = stack.size() - schema.returns().size();
  for (std::size_t i = results; i < stack.size(); ++i) bytes += bytes_of(stack[i]);
  if (schema.returns().empty() && schema.name().ends_with('_'))
    bytes += written_bytes(schema, arguments);
  fakecuda_count(("op:" + schema.name()).c_str(), bytes);
  if (const uint64_t flops = flops_of(schema.name(), arguments); flops > 0)
    fakecuda_count(("flop:" + schema.name()).c_str(), flops);
}

}  // namespace ddp::test::fake_cuda
