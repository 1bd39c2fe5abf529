#include "trainer/run/offloaded_optimizer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "trainer/config/config.h"
#include "trainer/parallel/device/cuda_module.h"

namespace ddp::train {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kLargestChunk = std::size_t{64} << 20;  // bytes
constexpr std::size_t kChunks = 8;  // of a small model: fewer leave little to overlap

std::size_t padded_bytes(const torch::Tensor& tensor) {
  return (tensor.nbytes() + kAlignment - 1) / kAlignment * kAlignment;
}

std::size_t bytes_of(const std::vector<Parameter>& parameters, std::size_t first,
                     std::size_t last) {
  std::size_t bytes = 0;
  for (std::size_t i = first; i < last; ++i) bytes += padded_bytes(parameters[i].tensor);
  return bytes;
}

/// The parameters [first, last) in their groups.
TrainedParameters range_of(const std::vector<Parameter>& parameters,
                           const std::vector<ParameterGroup>& groups, std::size_t first,
                           std::size_t last) {
  const auto at = [&](std::size_t i) {
    return parameters.begin() + static_cast<std::ptrdiff_t>(i);
  };
  TrainedParameters range{{at(first), at(last)}, {}};
  for (const ParameterGroup& group : groups) {
    ParameterGroup part = group;
    part.members.clear();
    for (const std::size_t member : group.members)
      if (member >= first && member < last) part.members.push_back(member - first);
    if (!part.members.empty()) range.groups.push_back(std::move(part));
  }
  return range;
}

}  // namespace

OffloadedOptimizer::HostMemory::HostMemory(std::size_t bytes)
    : memory(bytes), lock(loaded_cuda_module(), memory.data(), bytes) {}

torch::Tensor OffloadedOptimizer::HostMemory::tensor_like(const torch::Tensor& like,
                                                          std::size_t offset) const {
  return torch::from_blob(memory.data() + offset, like.sizes(), like.strides(),
                          torch::TensorOptions(like.scalar_type()));
}

OffloadedOptimizer::OffloadedOptimizer(TrainedParameters trained, const OptimizerConfig& config)
    : Optimizer(std::move(trained)),
      counters_(torch::zeros({2}, torch::TensorOptions(torch::kFloat32).pinned_memory(true))) {
  make_masters();
  refresh_masters();
  make_chunks(config);
}

// Copies that are on their way use its memory.
OffloadedOptimizer::~OffloadedOptimizer() {
  try {
    device_came_to(given_);
  } catch (const c10::Error&) {  // a broken device copies nothing any more
  }
}

void OffloadedOptimizer::make_masters() {
  masters_ = parameters();
  values_ = std::make_unique<HostMemory>(bytes_of(masters_, 0, masters_.size()));
  std::size_t offset = 0;
  for (Parameter& master : masters_) {
    const auto value = values_->tensor_like(master.tensor, offset);
    offset += padded_bytes(master.tensor);
    master.tensor = value;
  }
}

std::vector<std::size_t> OffloadedOptimizer::chunk_ends() const {
  const std::size_t target =
      std::min(kLargestChunk, bytes_of(masters_, 0, masters_.size()) / kChunks);
  std::vector<std::size_t> ends;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < masters_.size(); ++i) {
    const std::size_t more = padded_bytes(masters_[i].tensor);
    if (bytes > 0 && bytes + more > target) {
      ends.push_back(i);
      bytes = 0;
    }
    bytes += more;
  }
  ends.push_back(masters_.size());
  return ends;
}

void OffloadedOptimizer::make_chunks(const OptimizerConfig& config) {
  const auto ends = chunk_ends();
  std::size_t largest = 0;
  for (std::size_t i = 0, first = 0; i < ends.size(); first = ends[i++])
    largest = std::max(largest, bytes_of(masters_, first, ends[i]));
  for (auto& slot : slots_) slot = std::make_unique<HostMemory>(largest);
  std::size_t first = 0;
  for (const std::size_t end : ends) {
    const HostMemory& slot = *slots_[chunks_.size() % kSlots];
    std::size_t offset = 0;
    for (std::size_t i = first; i < end; ++i) {
      masters_[i].tensor.mutable_grad() = slot.tensor_like(masters_[i].tensor, offset);
      offset += padded_bytes(masters_[i].tensor);
    }
    auto optimizer = make_optimizer(range_of(masters_, groups(), first, end), config);
    chunks_.push_back({first, std::move(optimizer), nullptr});
    first = end;
  }
}

std::vector<NamedTensor> OffloadedOptimizer::state() const {
  std::vector<NamedTensor> result;
  for (const Chunk& chunk : chunks_) {
    auto state = chunk.optimizer->state();
    std::move(state.begin(), state.end(), std::back_inserter(result));
  }
  return result;
}

void OffloadedOptimizer::refresh_masters() {
  const torch::NoGradGuard no_grad;
  const auto ready = record_ready(parameters().front().tensor.device());
  wait_for_device(ready);
  const auto queue = ready->side_queue();
  for (std::size_t i = 0; i < masters_.size(); ++i)
    queue->copy(masters_[i].tensor, parameters()[i].tensor);
  wait_for_device(queue->mark());
}

void OffloadedOptimizer::write_masters(const std::function<void()>& write) {
  const torch::NoGradGuard no_grad;
  wait_for_device(parameters().front().tensor.device());  // what it reads, among it masters
  write();
  const auto queue = record_ready(parameters().front().tensor.device())->side_queue();
  for (const Chunk& chunk : chunks_) send_up(*queue, chunk);
  given_ = queue->mark();
  given_->make_stream_wait();
}

torch::Tensor OffloadedOptimizer::found_inf_of_masters(const torch::Tensor& /*found_inf*/) const {
  return counters_[1];
}

// Copies of weights in bfloat16 are left to the next step.
bool OffloadedOptimizer::update(double learning_rate, const torch::Tensor& found_inf,
                                const torch::Tensor& /*scale*/, const CopyOf& /*copy_of*/) {
  const auto counters = torch::stack({step_count(), found_inf.reshape({})});
  const auto ready = record_ready(counters.device());
  // To memory that is not locked the driver copies while this thread waits.
  if (!values_->lock.on() || !slots_[0]->lock.on()) wait_for_device(ready);
  const auto down = ready->side_queue();
  const auto up = ready->side_queue();
  down->copy(counters_, counters);
  for (std::size_t i = 0; i < std::min(kSlots, chunks_.size()); ++i) send_down(*down, chunks_[i]);
  for (std::size_t i = 0; i < chunks_.size(); ++i) {
    Optimizer& optimizer = *chunks_[i].optimizer;
    wait_for_device(chunks_[i].arrived);
    optimizer.step_count().copy_(counters_[0] - 1);  // a snapshot holds one count for all
    optimizer.step(learning_rate, counters_[1]);
    send_up(*up, chunks_[i]);
    if (i + kSlots < chunks_.size()) send_down(*down, chunks_[i + kSlots]);
  }
  given_ = up->mark();
  given_->make_stream_wait();
  return false;
}

void OffloadedOptimizer::send_down(CopyStream& queue, Chunk& chunk) {
  const std::size_t count = chunk.optimizer->parameters().size();
  for (std::size_t i = chunk.first; i < chunk.first + count; ++i)
    queue.copy(masters_[i].tensor.grad(), parameters()[i].tensor.grad());
  chunk.arrived = queue.mark();
}

void OffloadedOptimizer::send_up(CopyStream& queue, const Chunk& chunk) {
  const std::size_t count = chunk.optimizer->parameters().size();
  for (std::size_t i = chunk.first; i < chunk.first + count; ++i)
    queue.copy(parameters()[i].tensor.detach(), masters_[i].tensor);
}

std::unique_ptr<Optimizer> make_optimizer(TrainedParameters trained, const Config& config) {
  if (config.distributed.offload == Offload::kOptimizer)
    return std::make_unique<OffloadedOptimizer>(std::move(trained), config.optimizer);
  return make_optimizer(std::move(trained), config.optimizer);
}

}  // namespace ddp::train
