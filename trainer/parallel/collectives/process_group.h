// The group of all ranks: c10d's ProcessGroup, with Gloo for CPU tensors (all-reduces on one
// machine through shared memory) and NCCL for CUDA tensors.
#pragma once

#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "trainer/config/distributed_config.h"
#include "trainer/parallel/collectives/row_collectives.h"
#include "trainer/parallel/device/device_plan.h"
#include "trainer/parallel/environment/dist_env.h"

namespace ddp::train {

/// The part of a shared store that one group uses; empty: the group has a store of its own.
struct StorePart {
  c10::intrusive_ptr<c10d::Store> store;
};

/// The store at MASTER_ADDR:MASTER_PORT, for consecutive groups of one process. Throws RunError
/// with address and port.
class WorkerStore {
 public:
  WorkerStore(const DistEnv& env, double timeout_s);
  StorePart part(const std::string& name) const;

 private:
  c10::intrusive_ptr<c10d::Store> store_;
};

/// Options of an all-reduce that is awaited at once, as in ProcessGroup::all_reduce_sum().
c10d::AllreduceOptions options_of_awaited(const torch::Tensor& tensor);

/// A tensor in transit between two ranks. Wait for it on the thread that began it; on a GPU the
/// stream waits, not the host.
class Message {
 public:
  Message() = default;

  /// Does nothing if there is none, or it was waited for. Rethrows the transfer's error.
  void wait();

 private:
  friend class ProcessGroup;
  c10::intrusive_ptr<c10d::Work> work_;
  torch::Tensor tensor_, on_host_;  // the second one, if the backend only takes CPU tensors
  bool received_ = false;
};

/// All ranks of the run. A single process (no launcher) has no c10d group: collectives return at
/// once. The reduction order is fixed by rank, so that equal inputs give equal digits. Destroy
/// last.
class ProcessGroup {
 public:
  /// One process, no group.
  ProcessGroup() = default;
  /// Joins the group at MASTER_ADDR:MASTER_PORT; blocks until all ranks have joined or `timeout_s`
  /// is over. Throws RunError with address and port, UserError as check_rank_devices().
  ProcessGroup(const DistEnv& env, const DistributedConfig& config, const DevicePlan& plan,
               const StorePart& part = {});
  ProcessGroup(ProcessGroup&&) = default;
  ProcessGroup& operator=(ProcessGroup&&) = default;
  ~ProcessGroup();

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool is_main() const { return rank_ == 0; }
  /// Whether all-reduces of CPU tensors go through memory; the same on all ranks.
  bool shares_memory() const { return shares_memory_; }
  /// For logs: "nccl", "gloo with shared memory".
  std::string backend_text(const DevicePlan& plan) const;
  /// The numeric address at which this rank listens for the others; empty if unknown.
  const std::string& address() const { return address_; }
  /// Null when alone.
  const c10::intrusive_ptr<c10d::ProcessGroup>& c10d() const { return group_; }
  /// Row collectives for tensors on `device`; requires at least two ranks. The group must outlive
  /// the result.
  std::shared_ptr<RowCollectives> row_collectives(torch::Device device) const;

  /// Sums `tensor` over all ranks in place.
  void all_reduce_sum(torch::Tensor tensor);
  /// Takes the element-wise maximum over all ranks in place.
  void all_reduce_max(torch::Tensor tensor);
  /// Copies rank 0's tensors into the other ranks', in place; all are dense and of equal shapes.
  void broadcast(const std::vector<torch::Tensor>& tensors);
  /// Returns rank 0's text on every rank.
  std::string broadcast_text(const std::string& text);
  /// Returns one value per rank, in rank order, on every rank.
  std::vector<double> gather_doubles(double value);
  /// Returns one text per rank, in rank order, on every rank. For short texts: each rank receives
  /// size() times the longest.
  std::vector<std::string> gather_texts(const std::string& text);
  /// Sends the first sent[0] rows of `rows` to rank 0, the next to rank 1 and so on. Returns the
  /// rows that the ranks have sent here, received[r] of rank r, in their order.
  torch::Tensor all_to_all(const torch::Tensor& rows, std::vector<int64_t> sent,
                           std::vector<int64_t> received);
  void barrier();
  /// Begins to send `tensor` to rank `to`, which receives a tensor of its shape and type. The
  /// tensor must be contiguous and not be written to before the message has been waited for.
  /// Messages between two ranks arrive in the order in which both begin them.
  Message send(const torch::Tensor& tensor, int to);
  Message receive(torch::Tensor tensor, int from);
  /// Aborts pending NCCL operations of this group and its parts; may be called from any thread.
  /// What this rank's GPU computes afterwards is worthless. Returns within a second. No-op for
  /// Gloo.
  void abort();
  /// `part`: a group of some of these ranks. While it exists, abort() aborts its communicator as
  /// well.
  void add_part(const std::shared_ptr<ProcessGroup>& part);

  /// Maximum of the ranks' values, requested now and received later, so that a step hides the wait.
  class PendingMax {
   public:
    /// Returns the maximum of the first value.
    int64_t wait() { return wait_all().front(); }
    std::vector<int64_t> wait_all();

   private:
    friend class ProcessGroup;
    torch::Tensor values_;
    c10::intrusive_ptr<c10d::Work> work_;
  };
  PendingMax all_reduce_max_async(int64_t value) {
    return all_reduce_max_async(std::vector<int64_t>{value});
  }
  PendingMax all_reduce_max_async(const std::vector<int64_t>& values);

 private:
  struct Parts {
    std::mutex mutex;
    std::vector<std::weak_ptr<ProcessGroup>> groups;
  };

  void all_reduce(torch::Tensor tensor, c10d::ReduceOp operation);
  /// NCCL communicators of this group and its parts.
  std::vector<c10::intrusive_ptr<c10d::Backend>> communicators();
  void share_memory(c10::intrusive_ptr<c10d::Backend> gloo, bool wanted,
                    std::chrono::milliseconds timeout);
  void connect_gpus(const c10::intrusive_ptr<c10d::Store>& store, const DevicePlan& plan,
                    std::chrono::milliseconds timeout);

  int rank_ = 0;
  int size_ = 1;
  bool shares_memory_ = false;
  std::string address_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  c10::intrusive_ptr<c10d::Backend> gloo_;
  std::unique_ptr<Parts> parts_ = std::make_unique<Parts>();
};

}  // namespace ddp::train
