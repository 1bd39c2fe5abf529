#include "trainer/distributed/collectives.h"

#include <algorithm>
#include <chrono>
#include <functional>

namespace ddp::train {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kRuns = 5;

// One collective on tensors of `n` floats. Rank r contributes the value r + 1, so every expected result is a small
// integer and comparisons are exact.
class Probe {
 public:
  Probe(ProcessGroup& group, torch::Device device, int64_t n)
      : group_(*group.c10d()), rank_(group.rank()), size_(group.size()), options_(torch::TensorOptions(device)), n_(n) {}

  bool broadcast() {
    std::vector<torch::Tensor> data = {filled(rank_ + 1)};
    group_.broadcast(data)->wait();
    return holds(data[0], 1);
  }

  bool scatter() {
    std::vector<torch::Tensor> out = {filled(0)};
    std::vector<std::vector<torch::Tensor>> in;
    if (rank_ == 0) in.push_back(one_for_each_rank());
    group_.scatter(out, in)->wait();
    return holds(out[0], rank_ + 1);
  }

  bool gather() {
    std::vector<torch::Tensor> in = {filled(rank_ + 1)};
    std::vector<std::vector<torch::Tensor>> out;
    if (rank_ == 0) out.push_back(zeros_for_each_rank());
    group_.gather(out, in)->wait();
    return rank_ != 0 || all_ranks_present(out[0]);
  }

  bool reduce() {
    std::vector<torch::Tensor> data = {filled(rank_ + 1)};
    group_.reduce(data)->wait();
    return rank_ != 0 || holds(data[0], sum_of_ranks());
  }

  bool all_reduce() {
    std::vector<torch::Tensor> data = {filled(rank_ + 1)};
    group_.allreduce(data)->wait();
    return holds(data[0], sum_of_ranks());
  }

  bool all_gather() {
    std::vector<torch::Tensor> in = {filled(rank_ + 1)};
    std::vector<std::vector<torch::Tensor>> out = {zeros_for_each_rank()};
    group_.allgather(out, in)->wait();
    return all_ranks_present(out[0]);
  }

 private:
  torch::Tensor filled(int value) const { return torch::full({n_}, static_cast<float>(value), options_); }
  int sum_of_ranks() const { return size_ * (size_ + 1) / 2; }

  std::vector<torch::Tensor> one_for_each_rank() const {
    std::vector<torch::Tensor> result;
    for (int r = 0; r < size_; ++r) result.push_back(filled(r + 1));
    return result;
  }

  std::vector<torch::Tensor> zeros_for_each_rank() const {
    std::vector<torch::Tensor> result;
    for (int r = 0; r < size_; ++r) result.push_back(filled(0));
    return result;
  }

  static bool holds(const torch::Tensor& tensor, int value) {
    return tensor.eq(static_cast<float>(value)).all().item<bool>();
  }

  bool all_ranks_present(const std::vector<torch::Tensor>& tensors) const {
    for (int r = 0; r < size_; ++r) {
      if (!holds(tensors[static_cast<std::size_t>(r)], r + 1)) return false;
    }
    return true;
  }

  c10d::ProcessGroup& group_;
  int rank_;
  int size_;
  torch::TensorOptions options_;
  int64_t n_;
};

CollectiveReport measure(ProcessGroup& group, const std::string& name, int64_t bytes,
                         const std::function<bool()>& run) {
  CollectiveReport report{name, bytes, true, 0.0};
  std::vector<int64_t> times;
  for (int i = 0; i <= kRuns; ++i) {
    group.barrier();
    const auto start = Clock::now();
    report.correct = run() && report.correct;
    const auto elapsed = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count();
    if (i > 0) times.push_back(elapsed);  // the first run opens connections
  }
  std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
  report.median_us = static_cast<double>(group.all_reduce_max_async(times[kRuns / 2]).wait());
  report.correct = group.all_reduce_max_async(report.correct ? 0 : 1).wait() == 0;
  return report;
}

}  // namespace

std::vector<CollectiveReport> check_collectives(ProcessGroup& group, torch::Device device,
                                                const std::vector<int64_t>& sizes) {
  std::vector<CollectiveReport> reports;
  for (const int64_t bytes : sizes) {
    Probe probe(group, device, std::max<int64_t>(1, bytes / static_cast<int64_t>(sizeof(float))));
    reports.push_back(measure(group, "broadcast", bytes, [&] { return probe.broadcast(); }));
    reports.push_back(measure(group, "scatter", bytes, [&] { return probe.scatter(); }));
    reports.push_back(measure(group, "gather", bytes, [&] { return probe.gather(); }));
    reports.push_back(measure(group, "reduce", bytes, [&] { return probe.reduce(); }));
    reports.push_back(measure(group, "all_reduce", bytes, [&] { return probe.all_reduce(); }));
    reports.push_back(measure(group, "all_gather", bytes, [&] { return probe.all_gather(); }));
  }
  return reports;
}

}  // namespace ddp::train
