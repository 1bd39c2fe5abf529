#include "trainer/parallel/collectives/process_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <numeric>
#include <optional>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include "trainer/parallel/collectives/gloo_backend.h"
#include "trainer/parallel/collectives/shared_memory_backend.h"
#include "trainer/parallel/device/collective_wait.h"
#include "trainer/parallel/device/cuda_module.h"
#include "trainer/parallel/environment/network.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

constexpr std::size_t kBroadcastBufferBytes =
    250UL * 1024 * 1024;  // as in torch's DistributedDataParallel

[[noreturn]] void fail_join(const DistEnv& env, const c10::Error& error) {
  throw RunError(fmt::format("rank {} of {} cannot join the group at {}:{}: {}", env.rank,
                             env.world_size, env.master_addr, env.master_port,
                             error.what_without_backtrace()));
}

std::chrono::milliseconds as_milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000.0));
}

c10::intrusive_ptr<c10d::Store> join_store(const DistEnv& env, std::chrono::milliseconds timeout) {
  if (env.world_size == 1)
    return c10::make_intrusive<c10d::HashStore>();  // nobody to meet: no port
  c10d::TCPStoreOptions options;
  options.port = env.master_port;
  options.isServer = env.rank == 0 && !env.agent_store;
  options.numWorkers = env.world_size;
  options.waitWorkers = false;
  options.timeout = timeout;
  constexpr std::chrono::milliseconds kLongestWait{10'000};  // torch waits as long as is asked
  if (env.rank != 0 && !env.agent_store && env.single_node())
    wait_for_listener(env.master_port, std::min(timeout, kLongestWait));
  auto store = c10::make_intrusive<c10d::TCPStore>(env.master_addr, options);
  // As torch's env:// rendezvous does: what an earlier attempt left in a store of the agent is
  // never read.
  return c10::make_intrusive<c10d::PrefixStore>("/worker/attempt_" + env.restart_count, store);
}

/// None unless every one of `offers` can be opened here.
std::optional<SharedParts> open_parts(const std::vector<std::string>& offers) {
  std::vector<pid_t> processes;
  SharedParts parts;
  for (const std::string& text : offers) {
    const auto offer = SharedSegment::Offer::of(text);
    if (!offer) return std::nullopt;
    processes.push_back(offer->process);
  }
  // Before the segments are opened: then each is known to be that of the process that is watched.
  parts.ends = ProcessEnds::watch(processes);
  if (!parts.ends) return std::nullopt;
  for (const std::string& text : offers) {
    auto segment = SharedSegment::open(*SharedSegment::Offer::of(text), SharedReduce::kPartBytes);
    if (!segment) return std::nullopt;
    parts.of_ranks.push_back(std::move(*segment));
  }
  return parts;
}

}  // namespace

WorkerStore::WorkerStore(const DistEnv& env, double timeout_s) {
  if (!env.launched) return;
  try {
    store_ = join_store(env, as_milliseconds(timeout_s));
  } catch (const c10::Error& error) {
    fail_join(env, error);
  }
}

StorePart WorkerStore::part(const std::string& name) const {
  if (!store_) return {};
  return {c10::make_intrusive<c10d::PrefixStore>(name + "/", store_)};
}

ProcessGroup::ProcessGroup(const DistEnv& env, const DistributedConfig& config,
                           const DevicePlan& plan, const StorePart& part)
    : rank_(env.rank), size_(env.world_size) {
  if (!env.launched) return;
  const auto timeout = as_milliseconds(config.timeout_s);
  try {
    const auto store = part.store ? part.store : join_store(env, timeout);
    group_ = c10::make_intrusive<c10d::ProcessGroup>(store, rank_, size_);
    using Type = c10d::ProcessGroup::BackendType;
    address_ =
        env.single_node() ? "127.0.0.1" : local_address_towards(env.master_addr, env.master_port);
    const auto gloo = make_gloo_backend(c10::make_intrusive<c10d::PrefixStore>("gloo/", store),
                                        rank_, size_, timeout, address_);
    gloo_ = gloo;
    group_->setBackend(torch::kCPU, Type::GLOO, gloo);
    if (plan.device.is_cuda() && !plan.nccl) group_->setBackend(torch::kCUDA, Type::GLOO, gloo);
    std::vector<RankDevice> devices;
    for (const auto& text : gather_texts(RankDevice::of(plan).to_json()))
      devices.push_back(RankDevice::from_json(text));
    check_rank_devices(devices, config.ranks_per_device);
    share_memory(gloo, env.single_node() && config.backend != Backend::kGloo, timeout);
    if (plan.nccl) connect_gpus(store, plan, timeout);
    group_->setDefaultBackend(plan.nccl ? Type::NCCL : Type::GLOO);
  } catch (const c10::Error& error) {
    fail_join(env, error);
  }
}

// Without it ProcessGroupNCCL's destructor aborts its communicators and logs that. Peers of an
// orderly end have passed the last barrier; after a failure abort() has been called.
ProcessGroup::~ProcessGroup() {
  if (!group_ || std::uncaught_exceptions() > 0) return;
  try {
    group_->shutdown();
  } catch (const std::exception&) {  // the end of a group that is broken already
  }
}

// All ranks or none: who cannot see another one's memory keeps the others from using it.
void ProcessGroup::share_memory(c10::intrusive_ptr<c10d::Backend> gloo, bool wanted,
                                std::chrono::milliseconds timeout) {
  if (size_ == 1) return;
  const auto own = wanted ? SharedSegment::create(SharedReduce::kPartBytes) : std::nullopt;
  auto parts = open_parts(gather_texts(own ? own->offer().text() : "none"));
  c10::intrusive_ptr<c10d::Backend> shared;
  try {
    if (parts) shared = make_shared_memory_backend(std::move(gloo), std::move(*parts), timeout);
  } catch (const std::system_error&) {  // a limit of threads
  }
  for (const double made : gather_doubles(shared ? 1.0 : 0.0)) {
    if (made == 0.0) return;
  }
  // c10d keeps the first backend of a type.
  group_->setBackend(torch::kCPU, c10d::ProcessGroup::BackendType::CUSTOM, shared);
  shares_memory_ = true;
}

namespace {

/// NCCL's own set-up waits for all ranks without a bound, here for at most `timeout`: then throws
/// c10::Error and leaves the thread that waits behind, as it can only end with the process.
c10::intrusive_ptr<c10d::Backend> connect_nccl(const c10::intrusive_ptr<c10d::Store>& store,
                                               int rank, int size, torch::Device device,
                                               std::chrono::milliseconds timeout) {
  std::packaged_task<c10::intrusive_ptr<c10d::Backend>()> connect([=] {
    loaded_cuda_module()->set_device(device.index());
    return loaded_cuda_module()->connect_nccl(store, rank, size, device, timeout);
  });
  auto connected = connect.get_future();
  std::thread(std::move(connect)).detach();
  TORCH_CHECK(connected.wait_for(timeout) == std::future_status::ready,
              "its set-up did not end within distributed_config.timeout_s=",
              static_cast<double>(timeout.count()) / 1000,
              ": another rank has not entered it or cannot be reached");
  return connected.get();
}

}  // namespace

// At once, not at the first collective: what NCCL says then is said of the connection.
void ProcessGroup::connect_gpus(const c10::intrusive_ptr<c10d::Store>& store,
                                const DevicePlan& plan, std::chrono::milliseconds timeout) {
  try {
    const auto nccl = connect_nccl(c10::make_intrusive<c10d::PrefixStore>("nccl/", store), rank_,
                                   size_, plan.device, timeout);
    group_->setBoundDeviceId(plan.device);  // which setBackend() gives the backend
    group_->setBackend(torch::kCUDA, c10d::ProcessGroup::BackendType::NCCL, nccl);
  } catch (const c10::Error& error) {
    std::string why = error.what_without_backtrace();
    std::replace(why.begin(), why.end(), '\n', ' ');
    throw RunError(
        fmt::format("rank {} of {} cannot join by NCCL with {} ({}): {}; NCCL_DEBUG=INFO "
                    "in the environment says more",
                    rank_, size_, plan.device.str(), plan.gpu, why));
  }
}

c10d::AllreduceOptions options_of_awaited(const torch::Tensor& tensor) {
  c10d::AllreduceOptions options;
  options.asyncOp = !tensor.is_cpu();  // for NCCL it would be another stream
  return options;
}

std::string ProcessGroup::backend_text(const DevicePlan& plan) const {
  return plan.backend_name() + (shares_memory_ ? " with shared memory" : "");
}

void ProcessGroup::all_reduce(torch::Tensor tensor, c10d::ReduceOp operation) {
  if (!group_) return;
  auto options = options_of_awaited(tensor);
  options.reduceOp = std::move(operation);
  std::vector<torch::Tensor> tensors = {std::move(tensor)};
  const CollectiveWait waiting;
  group_->allreduce(tensors, options)->wait();
}

void ProcessGroup::all_reduce_sum(torch::Tensor tensor) {
  all_reduce(std::move(tensor), c10d::ReduceOp::SUM);
}

void ProcessGroup::all_reduce_max(torch::Tensor tensor) {
  all_reduce(std::move(tensor), c10d::ReduceOp::MAX);
}

void ProcessGroup::broadcast(const std::vector<torch::Tensor>& tensors) {
  if (!group_ || tensors.empty()) return;
  const CollectiveWait waiting;
  c10d::broadcast_coalesced(group_, tensors, kBroadcastBufferBytes, 0);
}

std::string ProcessGroup::broadcast_text(const std::string& text) {
  if (!group_) return text;
  const CollectiveWait waiting;
  auto length = torch::tensor({static_cast<int64_t>(text.size())}, torch::kInt64);
  std::vector<torch::Tensor> lengths = {length};
  group_->broadcast(lengths)->wait();
  const auto size = length.item<int64_t>();
  if (size == 0) return {};
  auto bytes = torch::empty({size}, torch::kUInt8);
  if (is_main()) std::memcpy(bytes.data_ptr(), text.data(), text.size());
  std::vector<torch::Tensor> payload = {bytes};
  group_->broadcast(payload)->wait();
  return {static_cast<const char*>(bytes.data_ptr()), static_cast<std::size_t>(size)};
}

std::vector<double> ProcessGroup::gather_doubles(double value) {
  auto values = torch::zeros({size_}, torch::kFloat64);
  values[rank_] = value;
  all_reduce_sum(values);
  const auto* data = values.const_data_ptr<double>();
  return {data, data + size_};
}

std::vector<std::string> ProcessGroup::gather_texts(const std::string& text) {
  const auto lengths = gather_doubles(static_cast<double>(text.size()));
  const double longest = *std::max_element(lengths.begin(), lengths.end());
  auto rows = torch::zeros({size_, static_cast<int64_t>(longest)}, torch::kUInt8);
  auto* const own = rows.data_ptr<uint8_t>() + rank_ * rows.size(1);
  std::copy(text.begin(), text.end(), own);
  all_reduce_sum(rows);
  std::vector<std::string> texts;
  for (int rank = 0; rank < size_; ++rank) {
    const auto* const row = rows.const_data_ptr<uint8_t>() + rank * rows.size(1);
    texts.emplace_back(row, row + static_cast<int64_t>(lengths[static_cast<std::size_t>(rank)]));
  }
  return texts;
}

namespace {

constexpr int kMessageTag = 0;

bool uses_nccl(const c10d::ProcessGroup& group) {
  return group.getBackendType() == c10d::ProcessGroup::BackendType::NCCL;
}

/// What Gloo sends of a tensor on a GPU that it serves.
torch::Tensor for_gloo(const torch::Tensor& tensor, const c10d::ProcessGroup& group) {
  return tensor.is_cuda() && !uses_nccl(group) ? torch::empty_like(tensor, torch::kCPU)
                                               : torch::Tensor();
}

}  // namespace

Message ProcessGroup::send(const torch::Tensor& tensor, int to) {
  Message message;
  message.tensor_ = tensor;
  message.on_host_ = for_gloo(tensor, *group_);
  if (message.on_host_.defined()) message.on_host_.copy_(tensor);
  std::vector<torch::Tensor> tensors = {message.on_host_.defined() ? message.on_host_ : tensor};
  message.work_ = group_->send(tensors, to, kMessageTag);
  return message;
}

Message ProcessGroup::receive(torch::Tensor tensor, int from) {
  Message message;
  message.received_ = true;
  message.tensor_ = tensor;
  message.on_host_ = for_gloo(tensor, *group_);
  std::vector<torch::Tensor> tensors = {message.on_host_.defined() ? message.on_host_ : tensor};
  message.work_ = group_->recv(tensors, from, kMessageTag);
  return message;
}

void Message::wait() {
  if (!work_) return;
  const CollectiveWait waiting;
  const auto work = std::move(work_);
  work->wait();
  if (received_ && on_host_.defined()) tensor_.copy_(on_host_);
  tensor_.reset();
  on_host_.reset();
}

void ProcessGroup::add_part(const std::shared_ptr<ProcessGroup>& part) {
  const std::lock_guard lock(parts_->mutex);
  parts_->groups.push_back(part);
}

std::vector<c10::intrusive_ptr<c10d::Backend>> ProcessGroup::communicators() {
  std::vector<c10::intrusive_ptr<c10d::Backend>> all;
  if (!group_ || !uses_nccl(*group_)) return all;
  all.push_back(group_->getBackend(torch::kCUDA));
  const std::lock_guard lock(parts_->mutex);
  for (const auto& each : parts_->groups) {
    if (const auto part = each.lock()) all.push_back(part->group_->getBackend(torch::kCUDA));
  }
  return all;
}

// ncclCommAbort() itself may wait for a link that is dead: each has a thread of its own.
void ProcessGroup::abort() {
  constexpr std::chrono::seconds kPatience{1};
  const auto until = std::chrono::steady_clock::now() + kPatience;
  std::vector<std::future<void>> aborted;
  for (auto& each : communicators()) {
    auto done = std::make_shared<std::promise<void>>();
    aborted.push_back(done->get_future());
    std::thread([done, nccl = std::move(each)] {
      try {
        nccl->abort();
      } catch (const std::exception&) {  // the process ends, whatever NCCL has to say
      }
      done->set_value();
    }).detach();
  }
  for (auto& each : aborted) each.wait_until(until);
}

// As bytes, as backends differ in the types that they know. Memory that ranks share has no such
// collective: Gloo sends on the CPU.
torch::Tensor ProcessGroup::all_to_all(const torch::Tensor& rows, std::vector<int64_t> sent,
                                       std::vector<int64_t> received) {
  const bool nccl = rows.is_cuda() && uses_nccl(*group_);
  const auto in = (nccl ? rows : rows.cpu()).contiguous();
  auto sizes = in.sizes().vec();
  sizes.front() = std::accumulate(received.begin(), received.end(), int64_t{0});
  const auto out = torch::empty(sizes, in.options().requires_grad(false));
  const auto backend = nccl ? group_->getBackend(torch::kCUDA) : gloo_;
  const CollectiveWait waiting;
  all_to_all_by(*backend, out.view(torch::kUInt8), in.view(torch::kUInt8), std::move(sent),
                std::move(received))
      ->wait();
  return out.to(rows.device());
}

void ProcessGroup::barrier() { all_reduce_sum(torch::zeros({1}, torch::kInt64)); }

std::shared_ptr<RowCollectives> ProcessGroup::row_collectives(torch::Device device) const {
  const bool nccl = device.is_cuda() && uses_nccl(*group_);
  if (device.is_cpu() && shares_memory_) {
    const auto backend = group_->getBackend(torch::kCPU);
    if (auto* const shared = dynamic_cast<RowCollectives*>(backend.get()))
      return {shared, [backend](RowCollectives*) {}};
  }
  return make_row_collectives(group_, nccl);
}

ProcessGroup::PendingMax ProcessGroup::all_reduce_max_async(const std::vector<int64_t>& values) {
  PendingMax pending;
  pending.values_ = torch::tensor(values, torch::kInt64);
  if (!group_) return pending;
  c10d::AllreduceOptions options;
  options.reduceOp = c10d::ReduceOp::MAX;
  std::vector<torch::Tensor> tensors = {pending.values_};
  pending.work_ = group_->allreduce(tensors, options);
  return pending;
}

std::vector<int64_t> ProcessGroup::PendingMax::wait_all() {
  const CollectiveWait waiting;
  if (work_) work_->wait();
  const auto* const first = values_.const_data_ptr<int64_t>();
  return {first, first + values_.numel()};
}

}  // namespace ddp::train
