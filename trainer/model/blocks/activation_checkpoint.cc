#include "trainer/model/blocks/activation_checkpoint.h"

#include <ATen/autocast_mode.h>

#include <mutex>
#include <utility>

namespace ddp::train {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// State of the default generator of a device.
class GeneratorState {
 public:
  explicit GeneratorState(torch::Device device)
      : generator_(at::globalContext().defaultGenerator(device)), state_(read()) {}

  void restore() {
    const std::lock_guard<std::mutex> lock(generator_.mutex());
    generator_.set_state(state_);
  }

 private:
  torch::Tensor read() {
    const std::lock_guard<std::mutex> lock(generator_.mutex());
    return generator_.get_state().clone();
  }

  at::Generator generator_;
  torch::Tensor state_;
};

/// Autocast of a thread: the backward pass may run in another one, or after the forward's scope.
struct AutocastState {
  explicit AutocastState(torch::DeviceType type)
      : device(type),
        enabled(at::autocast::is_autocast_enabled(type)),
        dtype(at::autocast::get_autocast_dtype(type)) {}

  void set() const {
    at::autocast::set_autocast_enabled(device, enabled);
    at::autocast::set_autocast_dtype(device, dtype);
  }

  torch::DeviceType device;
  bool enabled;
  torch::ScalarType dtype;
};

/// A part of the model, and the surroundings in which its forward pass ran.
struct Segment : torch::CustomClassHolder {
  Segment(std::function<torch::Tensor(const torch::Tensor&)> f, torch::Device device)
      : forward(std::move(f)), generator(device), autocast(device.type()) {}

  std::function<torch::Tensor(const torch::Tensor&)> forward;
  GeneratorState generator;
  AutocastState autocast;
};

/// The surroundings of a segment's forward pass while it lives.
class Surroundings {
 public:
  Surroundings(Segment& segment, torch::Device device)
      : generator_(device), autocast_(device.type()) {
    segment.generator.restore();
    segment.autocast.set();
    at::autocast::increment_nesting();
  }
  ~Surroundings() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    autocast_.set();
    generator_.restore();
  }
  Surroundings(const Surroundings&) = delete;
  Surroundings& operator=(const Surroundings&) = delete;

 private:
  GeneratorState generator_;
  AutocastState autocast_;
};

struct Checkpoint : torch::autograd::Function<Checkpoint> {
  static torch::Tensor forward(AutogradContext* context, const c10::intrusive_ptr<Segment>& segment,
                               const torch::Tensor& x, at::TensorList parameters) {
    variable_list saved = {x};
    saved.insert(saved.end(), parameters.begin(), parameters.end());
    context->save_for_backward(saved);
    context->saved_data["segment"] = c10::IValue::make_capsule(segment);
    return segment->forward(x);
  }

  // The gradients of the parameters are handed on to autograd, not accumulated here: DDP's hooks
  // see them as those of any other operation.
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    variable_list inputs = context->get_saved_variables();
    const auto segment =
        c10::static_intrusive_pointer_cast<Segment>(context->saved_data["segment"].toCapsule());
    const bool wants_x = inputs[0].requires_grad();
    inputs[0] = inputs[0].detach().requires_grad_(wants_x);
    torch::Tensor y;
    {
      const Surroundings surroundings(*segment, inputs[0].device());
      const torch::AutoGradMode grad_mode(true);
      y = segment->forward(inputs[0]);
    }
    const variable_list wanted(inputs.begin() + (wants_x ? 0 : 1), inputs.end());
    variable_list result = torch::autograd::grad({y}, wanted, gradients, /*retain_graph=*/false,
                                                 /*create_graph=*/false, /*allow_unused=*/true);
    if (!wants_x) result.insert(result.begin(), torch::Tensor());
    result.insert(result.begin(), torch::Tensor());  // of the segment
    return result;
  }
};

}  // namespace

torch::Tensor checkpoint(std::function<torch::Tensor(const torch::Tensor&)> forward,
                         const torch::Tensor& x, const std::vector<torch::Tensor>& parameters) {
  variable_list trained;
  for (const auto& parameter : parameters) {
    if (parameter.requires_grad()) trained.push_back(parameter);
  }
  if (!c10::GradMode::is_enabled() || (trained.empty() && !x.requires_grad())) return forward(x);
  auto segment = c10::make_intrusive<Segment>(std::move(forward), x.device());
  return Checkpoint::apply(segment, x, at::TensorList(trained));
}

}  // namespace ddp::train
