#include "trainer/parallel/collectives/unsent_backend.h"

#include <utility>

namespace ddp::train {
namespace {

class UnsentBackend : public c10d::Backend {
 public:
  explicit UnsentBackend(c10::intrusive_ptr<c10d::Backend> real)
      : Backend(real->getRank(), real->getSize()), real_(std::move(real)) {}

  const std::string getBackendName() const override { return real_->getBackendName(); }

  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    return real_->broadcast(tensors, options);
  }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& /*options*/) override {
    auto future =
        c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    future->markCompleted(c10::IValue(tensors));
    return c10d::Work::create_from_future(future);
  }

 private:
  c10::intrusive_ptr<c10d::Backend> real_;
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_unsent_backend(c10::intrusive_ptr<c10d::Backend> real) {
  return c10::make_intrusive<UnsentBackend>(std::move(real));
}

}  // namespace ddp::train
