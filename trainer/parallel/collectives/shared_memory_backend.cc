#include "trainer/parallel/collectives/shared_memory_backend.h"

#include <sched.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace ddp::train {
namespace {

std::optional<SharedReduce::Type> shared_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return SharedReduce::Type::kFloat32;
    case at::kDouble:
      return SharedReduce::Type::kFloat64;
    case at::kInt:
      return SharedReduce::Type::kInt32;
    case at::kLong:
      return SharedReduce::Type::kInt64;
    case at::kByte:
      return SharedReduce::Type::kUint8;
    default:
      return std::nullopt;
  }
}

std::optional<SharedReduce::Operation> shared_operation(const c10d::ReduceOp& operation) {
  if (operation == c10d::ReduceOp::SUM) return SharedReduce::Operation::kSum;
  if (operation == c10d::ReduceOp::MAX) return SharedReduce::Operation::kMax;
  return std::nullopt;
}

/// Depends only on what is the same on all ranks.
bool is_shared(const std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) {
  return tensors.size() == 1 && tensors[0].layout() == at::kStrided && tensors[0].is_cpu() &&
         shared_type(tensors[0].scalar_type()) && shared_operation(options.reduceOp);
}

std::vector<std::byte*> data_of(const std::vector<SharedSegment>& segments) {
  std::vector<std::byte*> data;
  for (const SharedSegment& segment : segments) data.push_back(segment.data());
  return data;
}

std::vector<SharedReduce::Row> pieces_of(const std::vector<std::vector<at::Tensor>>& rows) {
  std::vector<SharedReduce::Row> pieces(rows.size());
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    for (const at::Tensor& tensor : rows[rank])
      pieces[rank].push_back({static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()});
  }
  return pieces;
}

bool fewer_cores_than(std::size_t ranks) {
  cpu_set_t cores;
  return ::sched_getaffinity(0, sizeof cores, &cores) == 0 &&
         static_cast<std::size_t>(CPU_COUNT(&cores)) < ranks;
}

class SharedWork : public c10d::Work {
 public:
  using Action = std::function<void(SharedReduce&, SharedReduce::Time)>;

  /// `action` throws what went wrong; `tensors` are what it leaves its result in.
  SharedWork(int rank, c10d::OpType type, const char* title, std::vector<at::Tensor> tensors,
             Action action, std::chrono::milliseconds timeout)
      : Work(rank, type, title, tensors),
        future_(c10::make_intrusive<c10::ivalue::Future>(
            c10::ListType::create(c10::TensorType::get()))),
        tensors_(std::move(tensors)),
        action_(std::move(action)),
        timeout_(timeout) {}

  void run(SharedReduce& reduce, std::chrono::milliseconds default_timeout) {
    try {
      const at::NoGradGuard no_grad;
      action_(reduce, timeout_ == c10d::kUnsetTimeout ? default_timeout : timeout_);
    } catch (...) {
      future_->setError(std::current_exception());
      finish(std::current_exception());
      return;
    }
    future_->markCompleted(c10::IValue(tensors_));
    finish();
  }

  std::vector<at::Tensor> result() override { return tensors_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::vector<at::Tensor> tensors_;
  Action action_;
  std::chrono::milliseconds timeout_;
};

// The copy is made here: a lack of memory for it must not part the ranks' order.
SharedWork::Action all_reduce(const at::Tensor& tensor, const c10d::ReduceOp& operation) {
  return [tensor, dense = tensor.detach().contiguous(), type = *shared_type(tensor.scalar_type()),
          operation = *shared_operation(operation)](SharedReduce& reduce,
                                                    SharedReduce::Time limit) {
    reduce.run(dense.data_ptr(), static_cast<std::size_t>(dense.numel()), type, operation, limit);
    if (dense.data_ptr() != tensor.data_ptr()) tensor.copy_(dense);
  };
}

class SharedMemoryBackend : public c10d::Backend, public RowCollectives {
 public:
  SharedMemoryBackend(c10::intrusive_ptr<c10d::Backend> gloo, SharedParts parts,
                      std::chrono::milliseconds timeout)
      : Backend(gloo->getRank(), gloo->getSize()),
        gloo_(std::move(gloo)),
        timeout_(timeout),
        parts_(std::move(parts)),
        reduce_(rank_, data_of(parts_.of_ranks), fewer_cores_than(parts_.of_ranks.size())) {
    parts_.ends->start([this](std::size_t rank) { reduce_.lose(static_cast<int>(rank)); });
    try {
      thread_ = std::thread([this] { work(); });
    } catch (...) {
      parts_.ends.reset();  // it speaks to reduce_
      throw;
    }
  }

  ~SharedMemoryBackend() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
    parts_.ends.reset();  // it speaks to reduce_
  }

  const std::string getBackendName() const override { return gloo_->getBackendName(); }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    if (!is_shared(tensors, options)) return gloo_->allreduce(tensors, options);
    auto work = c10::make_intrusive<SharedWork>(
        rank_, c10d::OpType::ALLREDUCE, "shared_memory:all_reduce", tensors,
        all_reduce(tensors[0], options.reduceOp), options.timeout);
    std::unique_lock lock(mutex_);
    if (options.asyncOp || busy_ || !waiting_.empty())
      enqueue(work, lock);
    else
      run(*work, lock);
    return work;
  }

  RowWork reduce_scatter(const at::Tensor& table, const at::Tensor& own, bool add) override {
    return begin(c10d::OpType::REDUCE_SCATTER, "shared_memory:reduce_scatter", own,
                 [table, own, add, type = *shared_type(own.scalar_type())](
                     SharedReduce& reduce, SharedReduce::Time limit) {
                   reduce.scatter_sums(table.const_data_ptr(), own.data_ptr(),
                                       static_cast<std::size_t>(own.numel()), type, add, limit);
                 });
  }

  RowWork all_gather(const at::Tensor& table) override {
    return begin(c10d::OpType::ALLGATHER, "shared_memory:all_gather", table,
                 [table, type = *shared_type(table.scalar_type())](SharedReduce& reduce,
                                                                   SharedReduce::Time limit) {
                   reduce.gather_rows(table.data_ptr(), static_cast<std::size_t>(table.size(1)),
                                      type, limit);
                 });
  }

  std::optional<RowWork> gather_pieces(const std::vector<std::vector<at::Tensor>>& rows) override {
    return begin(c10d::OpType::ALLGATHER, "shared_memory:gather_pieces", at::empty({0}),
                 [rows](SharedReduce& reduce, SharedReduce::Time limit) {
                   reduce.gather_pieces(pieces_of(rows), limit);
                 });
  }

  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    return gloo_->broadcast(tensors, options);
  }
  c10::intrusive_ptr<c10d::Work> reduce(std::vector<at::Tensor>& tensors,
                                        const c10d::ReduceOptions& options) override {
    return gloo_->reduce(tensors, options);
  }
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options) override {
    return gloo_->allgather(outputs, inputs, options);
  }
  c10::intrusive_ptr<c10d::Work> gather(std::vector<std::vector<at::Tensor>>& outputs,
                                        std::vector<at::Tensor>& inputs,
                                        const c10d::GatherOptions& options) override {
    return gloo_->gather(outputs, inputs, options);
  }
  c10::intrusive_ptr<c10d::Work> scatter(std::vector<at::Tensor>& outputs,
                                         std::vector<std::vector<at::Tensor>>& inputs,
                                         const c10d::ScatterOptions& options) override {
    return gloo_->scatter(outputs, inputs, options);
  }
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int to, int tag) override {
    return gloo_->send(tensors, to, tag);
  }
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int from,
                                      int tag) override {
    return gloo_->recv(tensors, from, tag);
  }
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options) override {
    return gloo_->barrier(options);
  }

 private:
  RowWork begin(c10d::OpType type, const char* title, const at::Tensor& result,
                SharedWork::Action action) {
    auto work = c10::make_intrusive<SharedWork>(rank_, type, title, std::vector<at::Tensor>{result},
                                                std::move(action), c10d::kUnsetTimeout);
    std::unique_lock lock(mutex_);
    enqueue(work, lock);
    return RowWork(work);
  }

  void enqueue(const c10::intrusive_ptr<SharedWork>& work, std::unique_lock<std::mutex>& lock) {
    waiting_.push_back(work);
    lock.unlock();
    changed_.notify_all();
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return !busy_ && (stop_ || !waiting_.empty()); });
      if (waiting_.empty()) return;
      const auto next = std::move(waiting_.front());
      waiting_.pop_front();
      run(*next, lock);
    }
  }

  void run(SharedWork& work, std::unique_lock<std::mutex>& lock) {
    busy_ = true;
    lock.unlock();
    work.run(reduce_, timeout_);
    lock.lock();
    busy_ = false;
    if (!waiting_.empty()) changed_.notify_all();
  }

  c10::intrusive_ptr<c10d::Backend> gloo_;
  std::chrono::milliseconds timeout_;
  SharedParts parts_;
  SharedReduce reduce_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<c10::intrusive_ptr<SharedWork>> waiting_;
  bool busy_ = false;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_shared_memory_backend(c10::intrusive_ptr<c10d::Backend> gloo,
                                                             SharedParts parts,
                                                             std::chrono::milliseconds timeout) {
  return c10::make_intrusive<SharedMemoryBackend>(std::move(gloo), std::move(parts), timeout);
}

}  // namespace ddp::train
