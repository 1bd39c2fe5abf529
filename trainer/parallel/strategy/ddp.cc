#include "trainer/parallel/strategy/ddp.h"

#include <fmt/format.h>

#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <unordered_map>
#include <utility>

#include "trainer/parallel/device/collective_wait.h"
#include "trainer/parallel/device/device_progress.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

std::vector<std::vector<size_t>> initial_buckets(const std::vector<torch::Tensor>& parameters,
                                                 int64_t cap_bytes) {
  const std::vector<size_t> limits = {
      static_cast<size_t>(std::min<int64_t>(c10d::kDefaultFirstBucketBytes, cap_bytes)),
      static_cast<size_t>(cap_bytes)};
  auto buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(parameters, limits));
  std::reverse(buckets.begin(),
               buckets.end());  // the backward pass goes from the last layer to the first
  return buckets;
}

std::optional<torch::ScalarType> type_on_the_way(GradientCompression compression) {
  switch (compression) {
    case GradientCompression::kNone:
      return std::nullopt;
    case GradientCompression::kBf16:
      return torch::kBFloat16;
    case GradientCompression::kFp16:
      return torch::kFloat16;
  }
  return std::nullopt;
}

/// The same ranks and the same Gloo, but what it sends by can be exchanged for a while.
c10::intrusive_ptr<c10d::ProcessGroup> second_view(c10d::ProcessGroup& group) {
  using Type = c10d::ProcessGroup::BackendType;
  auto view =
      c10::make_intrusive<c10d::ProcessGroup>(group.getStore(), group.getRank(), group.getSize());
  view->setBackend(torch::kCPU, Type::GLOO, group.getBackend(torch::kCPU));
  view->setDefaultBackend(Type::GLOO);
  return view;
}

/// For passes whose gradients are discarded: the Reducer of a CPU model lays out its buckets
/// without sending them. Broadcasts, by which the ranks agree on a layout, go to `real`;
/// all-reduces complete at once and leave the tensors unchanged.
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

/// Reduces gradients in 16 bits, as torch.distributed.algorithms.ddp_comm_hooks.default_hooks'
/// bf16_compress_hook and fp16_compress_hook: each rank divides by the number of ranks and rounds
/// to `type`, the sum is made in `type`, the result is copied back.
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

void check_same_parameters(const std::vector<torch::Tensor>& parameters, ProcessGroup& group) {
  try {
    c10d::verify_params_across_processes(group.c10d(), parameters, std::nullopt);
  } catch (const c10::Error& error) {
    throw RunError(
        fmt::format("the ranks do not hold the same model: {}", error.what_without_backtrace()));
  }
}

DistributedDataParallel::DistributedDataParallel(NamedParameters parameters, ProcessGroup& group,
                                                 const DistributedConfig& config,
                                                 FirstValues values) {
  add(std::move(parameters), group, config, values);
}

void DistributedDataParallel::add(NamedParameters parameters, ProcessGroup& group,
                                  const DistributedConfig& config, FirstValues values) {
  if (!group.c10d() || parameters.empty()) return;
  const CollectiveWait waiting;
  std::vector<torch::Tensor> tensors;
  std::unordered_map<size_t, std::string> names;
  for (auto& [name, tensor] : parameters) {
    names.emplace(tensors.size(), name);
    tensors.push_back(tensor);
  }
  check_same_parameters(tensors, group);
  if (values == FirstValues::kOfRankZero) {
    torch::NoGradGuard no_grad;
    group.broadcast(tensors);
  }
  Part part;
  if (tensors.front().is_cpu()) part.gloo_view = second_view(*group.c10d());
  const auto reduced_by = part.gloo_view ? part.gloo_view : group.c10d();
  constexpr double kMiB = 1024.0 * 1024.0;
  const auto cap_bytes = std::max<int64_t>(1, static_cast<int64_t>(config.bucket_cap_mb * kMiB));
  part.reducer = std::make_shared<c10d::Reducer>(
      tensors, initial_buckets(tensors, cap_bytes), reduced_by,
      std::vector<bool>(tensors.size(), false), cap_bytes,
      /*find_unused_parameters=*/false, config.gradient_as_bucket_view, names,
      std::min<int64_t>(c10d::kDefaultFirstBucketBytes, cap_bytes),
      /*skip_all_reduce_unused_params=*/false,
      /*use_python_reducer=*/false, /*bucket_bytes_cap_list=*/std::vector<int64_t>{});
  if (config.static_graph) part.reducer->set_static_graph();
  learn_static_graph_ = config.static_graph;
  if (const auto type = type_on_the_way(config.gradient_compression))
    part.reducer->register_comm_hook(std::make_unique<CompressHook>(reduced_by, *type));
  parts_.push_back(std::move(part));
}

DistributedDataParallel::~DistributedDataParallel() = default;

void DistributedDataParallel::warm_up(const std::function<torch::Tensor()>& forward) {
  using Type = c10d::ProcessGroup::BackendType;
  std::vector<std::pair<c10d::ProcessGroup*, c10::intrusive_ptr<c10d::Backend>>> exchanged;
  for (const Part& part : parts_) {
    if (!part.gloo_view) continue;
    const auto real = part.gloo_view->getBackend(torch::kCPU);
    exchanged.emplace_back(part.gloo_view.get(), real);
    part.gloo_view->setBackend(torch::kCPU, Type::CUSTOM, c10::make_intrusive<UnsentBackend>(real));
  }
  // The second pass moves the gradients into the buckets of the final layout.
  for (int pass = 0; pass < 2 && !parts_.empty(); ++pass) {
    begin_micro_batch(/*last=*/true);
    backward(forward());
    for (const Part& part : parts_) part.reducer->rebuild_buckets();
  }
  for (const auto& [view, real] : exchanged) view->setBackend(torch::kCPU, Type::GLOO, real);
}

void DistributedDataParallel::begin_micro_batch(bool last) {
  sync_ = last;
  if (!last) return;
  for (const Part& part : parts_) part.reducer->prepare_for_forward();
}

void DistributedDataParallel::backward(const torch::Tensor& loss) {
  if (parts_.empty() || !sync_) return loss.backward();
  prepare_for_backward(loss);
  const CollectiveWait waiting;  // its first buckets are on their way before it has ended
  loss.backward();
}

void DistributedDataParallel::prepare_for_backward(const torch::Tensor& loss) {
  // The reducer lets the queue wait for its collectives in a callback that it adds later.
  if (loss.is_cuda()) {
    loss.register_hook([device = loss.device()](const torch::Tensor&) {
      torch::autograd::Engine::get_default_engine().queue_callback(
          [device] { DeviceProgress::own_work_ends_here(device); });
    });
  }
  if (learn_static_graph_) {
    // A static graph is recorded in the first pass: c10d then reduces at the end of that pass, when
    // asked to. Called from a hook because the engine takes callbacks only while a backward pass
    // runs.
    loss.register_hook([this](const torch::Tensor&) {
      torch::autograd::Engine::get_default_engine().queue_callback([this] {
        for (const Part& part : parts_) part.reducer->delay_all_reduce();
      });
    });
    learn_static_graph_ = false;
  }
  for (const Part& part : parts_) part.reducer->prepare_for_backward({loss});
}

void DistributedDataParallel::measure_times() {
  if (parts_.empty() || times_) return;
  parts_.front().reducer->set_ddp_runtime_logging_sample_rate(1);
  times_ = std::make_shared<c10d::Logger>(parts_.front().reducer);
}

std::optional<SyncTimes> DistributedDataParallel::times() {
  if (!times_) return std::nullopt;
  times_->set_runtime_stats_and_log();
  const auto measured = times_->get_ddp_logging_data().ints_map;
  const auto ms = [&](const char* name) {
    const auto found = measured.find(name);
    return found == measured.end() ? 0.0 : 1e-6 * static_cast<double>(found->second);
  };
  const SyncTimes times{ms("backward_compute_time"), ms("backward_comm_time"),
                        ms("backward_compute_comm_overlap_time")};
  return times == SyncTimes{} ? std::nullopt : std::optional(times);
}

}  // namespace ddp::train
