#include "trainer/parallel/collectives/collectives.h"

#include <algorithm>
#include <chrono>
#include <functional>

#include "trainer/parallel/device/cuda_module.h"

namespace ddp::train {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kRuns = 5;

// One collective to be run: `prepare` fills the buffers, `run` alone is timed, `check` looks at
// this rank's result.
struct Case {
  std::string name;
  std::function<void()> prepare;
  std::function<void()> run;  ///< To its end.
  std::function<bool()> check;
};

// The buffers of one size. Rank r contributes the value r + 1, so every expected result is a small
// integer and comparisons are exact.
class Probe {
 public:
  Probe(ProcessGroup& group, torch::Device device, int64_t n)
      : ranks_(group), group_(*group.c10d()), rank_(group.rank()), size_(group.size()) {
    const auto buffer = [&] { return torch::zeros({n}, torch::TensorOptions(device)); };
    mine_ = {buffer()};
    // A table of as many elements in all, as far as that goes.
    table_ = torch::zeros({size_, std::max<int64_t>(1, n / size_)}, torch::TensorOptions(device));
    row_ = torch::zeros({table_.size(1)}, table_.options());
    rows_ = group.row_collectives(device);
    for (int r = 0; r < size_; ++r) each_.push_back(buffer());
    if (rank_ == 0) on_root_ = {each_};
    everywhere_ = {each_};
  }

  std::vector<Case> cases() {
    auto all = collectives();
    if (size_ == 1) return all;
    const auto filled = [this] {
      mine_[0].fill_(rank_ + 1);
      each_[0].zero_();
    };
    const int before = (rank_ + size_ - 1) % size_;
    all.push_back({"send_receive", filled, [this, before] { pass_on(before); },
                   [this, before] { return holds(each_[0], before + 1); }});
    return all;
  }

 private:
  // The messages between two ranks go through one queue: they must begin them in the same order.
  void pass_on(int before) {
    Message sent, received;
    const auto send = [&] { sent = ranks_.send(mine_[0], (rank_ + 1) % size_); };
    if (rank_ % 2 == 0) send();
    received = ranks_.receive(each_[0], before);
    if (rank_ % 2 == 1) send();
    sent.wait();
    received.wait();
  }

  std::vector<Case> collectives() {
    const int sum = size_ * (size_ + 1) / 2;
    const auto own = [this] { mine_[0].fill_(rank_ + 1); };
    const auto gathered = [this, own] {
      own();
      for (auto& tensor : each_) tensor.zero_();
    };
    const auto dealt = [this] {
      mine_[0].zero_();
      for (int r = 0; r < size_; ++r) each_[static_cast<std::size_t>(r)].fill_(r + 1);
    };
    return {
        {"broadcast", own, [this] { group_.broadcast(mine_)->wait(); },
         [this] { return holds(mine_[0], 1); }},
        {"scatter", dealt, [this] { group_.scatter(mine_, on_root_)->wait(); },
         [this] { return holds(mine_[0], rank_ + 1); }},
        {"gather", gathered, [this] { group_.gather(on_root_, mine_)->wait(); },
         [this] { return rank_ != 0 || every_rank_present(); }},
        {"reduce", own, [this] { group_.reduce(mine_)->wait(); },
         [this, sum] { return rank_ != 0 || holds(mine_[0], sum); }},
        {"all_reduce", own,
         [this] { group_.allreduce(mine_, options_of_awaited(mine_[0]))->wait(); },
         [this, sum] { return holds(mine_[0], sum); }},
        {"all_gather", gathered, [this] { group_.allgather(everywhere_, mine_)->wait(); },
         [this] { return every_rank_present(); }},
        {"reduce_scatter", [this] { table_.fill_(rank_ + 1); },
         [this] { rows_->reduce_scatter(table_, row_, /*add=*/false).wait(); },
         [this, sum] { return holds(row_, sum); }},
        {"all_gather_rows",
         [this] {
           table_.zero_();
           table_[rank_].fill_(rank_ + 1);
         },
         [this] { rows_->all_gather(table_).wait(); },
         [this] {
           for (int r = 0; r < size_; ++r) {
             if (!holds(table_[r], r + 1)) return false;
           }
           return true;
         }},
    };
  }

  static bool holds(const torch::Tensor& tensor, int value) {
    return tensor.eq(static_cast<float>(value)).all().item<bool>();
  }

  bool every_rank_present() const {
    for (int r = 0; r < size_; ++r) {
      if (!holds(each_[static_cast<std::size_t>(r)], r + 1)) return false;
    }
    return true;
  }

  ProcessGroup& ranks_;
  c10d::ProcessGroup& group_;
  int rank_;
  int size_;
  torch::Tensor table_;
  torch::Tensor row_;
  std::shared_ptr<RowCollectives> rows_;
  std::vector<torch::Tensor> mine_;
  std::vector<torch::Tensor> each_;  // shared with the two lists below
  std::vector<std::vector<torch::Tensor>>
      on_root_;  // empty on other ranks, as scatter and gather want it
  std::vector<std::vector<torch::Tensor>> everywhere_;
};

void synchronize(torch::Device device) {
  if (device.is_cuda()) loaded_cuda_module()->synchronize();
}

CollectiveReport measure(ProcessGroup& group, torch::Device device, const Case& one,
                         int64_t bytes) {
  CollectiveReport report{one.name, bytes, true, 0.0};
  std::vector<int64_t> times;
  for (int i = 0; i <= kRuns; ++i) {
    one.prepare();
    synchronize(device);
    group.barrier();
    const auto start = Clock::now();
    one.run();
    synchronize(device);
    const auto elapsed =
        std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count();
    report.correct = one.check() && report.correct;
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
    for (const auto& one : probe.cases()) reports.push_back(measure(group, device, one, bytes));
  }
  return reports;
}

}  // namespace ddp::train
