#include "trainer/parallel/strategy/pipeline_executor.h"

#include <algorithm>

namespace ddp::train {

using Kind = PipelineAction::Kind;

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// A scalar whose backward pass continues with a gradient that arrives later. It keeps the graph of
/// `output`, not the tensor.
template <class Gradient>
struct FromGradient : torch::autograd::Function<FromGradient<Gradient>> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& output,
                               const c10::intrusive_ptr<Gradient>& gradient) {
    context->saved_data["gradient"] = c10::IValue::make_capsule(gradient);
    return torch::zeros({}, output.options().dtype(torch::kFloat32));
  }

  static variable_list backward(AutogradContext* context, const variable_list& /*gradients*/) {
    const auto gradient =
        c10::static_intrusive_pointer_cast<Gradient>(context->saved_data["gradient"].toCapsule());
    return {std::move(gradient->value), torch::Tensor()};
  }
};

}  // namespace

PipelineExecutor::PipelineExecutor(PipelineSchedule schedule, const PipelineShape& shape,
                                   ProcessGroup& group, const torch::TensorOptions& options,
                                   SharedTable table)
    : shape_(shape),
      group_(group),
      options_(options.requires_grad(false)),
      table_(std::move(table)),
      order_(pipeline_orders(schedule, shape)[static_cast<std::size_t>(group.rank())]),
      last_backward_(*std::find_if(order_.rbegin(), order_.rend(), [](const auto& action) {
        return action.kind == Kind::kBackward;
      })) {}

void PipelineExecutor::run(StageCompute& compute) {
  passes_.clear();
  sent_.clear();
  if (table_.copy.defined()) table_.copy.mutable_grad().reset();
  for (const PipelineAction& action : order_) perform(compute, action);
  if (table_.copy.defined() && table_.copy.requires_grad())
    sent_.push_back(group_.send(table_.copy.grad(), 0));
  if (shape_.chunks > 1) compute.sync();
  for (Message& message : sent_) message.wait();
  sent_.clear();
}

void PipelineExecutor::perform(StageCompute& compute, const PipelineAction& action) {
  const auto [kind, stage, micro_batch] = action;
  Pass& pass = passes_[{stage, micro_batch}];
  switch (kind) {
    case Kind::kForward:
      return forward(compute, action);
    case Kind::kBackward:
      return backward(compute, action);
    case Kind::kReceiveInput:
      return receive(pass.input, pass.input_message, compute, micro_batch, stage - 1);
    case Kind::kReceiveGradient:
      return receive(pass.gradient->value, pass.gradient_message, compute, micro_batch, stage + 1);
    case Kind::kSendOutput:
      send(pass.output, stage + 1);
      pass.output.reset();
      return;
    case Kind::kSendGradient:
      send(pass.input.grad(), stage - 1);
      passes_.erase({stage, micro_batch});
  }
}

void PipelineExecutor::forward(StageCompute& compute, const PipelineAction& action) {
  const auto [kind, stage, micro_batch] = action;
  Pass& pass = passes_[{stage, micro_batch}];
  if (stage > 0) {
    pass.input_message.wait();
    pass.input.set_requires_grad(true);
  }
  const auto output = compute.forward(stage, micro_batch, pass.input);
  if (!output.requires_grad()) output.set_requires_grad(true);  // a frozen first stage
  if (shape_.is_last(stage)) {
    pass.start = output;
    return;
  }
  pass.gradient = c10::make_intrusive<Gradient>();
  pass.start = FromGradient<Gradient>::apply(output, pass.gradient);
  pass.output = output.detach().to(options_.dtype()).contiguous();
}

void PipelineExecutor::backward(StageCompute& compute, const PipelineAction& action) {
  Pass& pass = passes_[{action.stage, action.micro_batch}];
  pass.gradient_message.wait();
  const bool last = action == last_backward_;
  if (last && table_.trained.defined()) add_gradient_of_copy();
  // The last gradients of several chunks come in several passes.
  compute.backward(pass.start, last && shape_.chunks == 1);
  pass.start.reset();
  if (action.stage == 0) passes_.erase({action.stage, action.micro_batch});
}

// It is the last message between these two ranks in a step: the last backward pass of the first
// stage is after all of the others.
void PipelineExecutor::add_gradient_of_copy() {
  if (!table_.trained.requires_grad()) return;
  const torch::NoGradGuard no_grad;
  auto gradient = torch::empty_like(table_.trained);
  group_.receive(gradient, group_.size() - 1).wait();
  auto& own = table_.trained.mutable_grad();
  if (own.defined())
    own.add_(gradient);
  else
    own = gradient;
}

void PipelineExecutor::receive(torch::Tensor& into, Message& message, StageCompute& compute,
                               int64_t micro_batch, int from_stage) {
  into = torch::empty(compute.activation_shape(micro_batch), options_);
  message = group_.receive(into, shape_.rank_of(from_stage));
}

// Few are on their way at a time: what has arrived is freed.
void PipelineExecutor::send(const torch::Tensor& tensor, int to_stage) {
  constexpr std::size_t kMost = 4;
  while (sent_.size() >= kMost) {
    sent_.front().wait();
    sent_.pop_front();
  }
  sent_.push_back(group_.send(tensor.contiguous(), shape_.rank_of(to_stage)));
}

void PipelineExecutor::share_table() {
  const torch::NoGradGuard no_grad;
  sent_table_.wait();
  if (table_.trained.defined())
    sent_table_ = group_.send(table_.trained.detach(), shape_.ranks - 1);
  if (table_.copy.defined()) group_.receive(table_.copy.detach(), 0).wait();
}

}  // namespace ddp::train
