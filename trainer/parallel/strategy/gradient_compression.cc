#include "trainer/parallel/strategy/gradient_compression.h"

#include <utility>
#include <vector>

namespace ddp::train {
namespace {

class CompressHook final : public c10d::CommHookInterface {
 public:
  CompressHook(c10::intrusive_ptr<c10d::ProcessGroup> group, torch::ScalarType type)
      : group_(std::move(group)), type_(type) {}

  // In this order: rounded before it is divided, as torch does it.
  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    const torch::NoGradGuard no_grad;
    std::vector<torch::Tensor> compressed = {
        bucket.getBuffer().to(type_).div_(static_cast<int64_t>(group_->getSize()))};
    const auto reduced = group_->allreduce(compressed)->getFuture();
    const auto decompress = [buffer = bucket.getBuffer()](c10::ivalue::Future& future) {
      return c10::IValue(buffer.copy_(future.value().toTensorVector().front()));
    };
    return reduced->then(decompress, c10::TensorType::get());
  }

  torch::Tensor parseHookResult(const c10::IValue& result) override { return result.toTensor(); }

 private:
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  torch::ScalarType type_;
};

}  // namespace

std::unique_ptr<c10d::CommHookInterface> make_compress_hook(
    c10::intrusive_ptr<c10d::ProcessGroup> group, torch::ScalarType type) {
  return std::make_unique<CompressHook>(std::move(group), type);
}

}  // namespace ddp::train
