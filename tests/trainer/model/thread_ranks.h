// Ranks that share a model's layers, as threads of one process that take turns: at each collective
// the next one continues, with its own state of torch's default generator. What they compute is
// therefore the same in each run, dropout included.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "trainer/model/blocks/tensor_parallel.h"

namespace ddp::train::test {

class ThreadRanks {
 public:
  explicit ThreadRanks(int64_t size, bool divides_sequence = false, bool divides_experts = false)
      : generators_(static_cast<std::size_t>(size), generator_state()),
        size_(size),
        divides_sequence_(divides_sequence),
        divides_experts_(divides_experts) {}

  /// Runs `work` as each rank. Throws what the first rank that failed threw.
  void run(const std::function<void(const TensorRanksPtr&)>& work) {
    std::vector<std::thread> threads;
    for (int64_t rank = 0; rank < size_; ++rank) {
      threads.emplace_back([this, rank, &work] {
        try {
          take_turn(rank);
          work(c10::make_intrusive<Rank>(*this, rank));
        } catch (...) {
          const std::lock_guard lock(mutex_);
          if (!failure_) failure_ = std::current_exception();
        }
        pass_turn(rank);
      });
    }
    for (auto& thread : threads) thread.join();
    if (failure_) std::rethrow_exception(failure_);
  }

  /// Collectives that rank 0 has taken part in, by name.
  const std::map<std::string, int>& calls() const { return calls_; }
  void forget_calls() { calls_.clear(); }
  /// Elements of the largest tensor in a collective.
  int64_t largest_tensor() const { return largest_tensor_; }

 private:
  static constexpr const char* kAllToAll = "all_to_all";

  class Rank : public TensorRanks {
   public:
    Rank(ThreadRanks& all, int64_t rank) : all_(all), rank_(rank) {}
    int64_t rank() const override { return rank_; }
    int64_t size() const override { return all_.size_; }
    bool divides_sequence() const override { return all_.divides_sequence_; }
    void sum(const torch::Tensor& x) override {
      const auto values = all_.exchange("sum", rank_, x);
      x.copy_(torch::stack(values).sum(0));
    }
    void largest(const torch::Tensor& x) override {
      const auto values = all_.exchange("largest", rank_, x);
      x.copy_(torch::stack(values).amax(0));
    }
    void all_gather(const torch::Tensor& table) override {
      table.copy_(torch::stack(all_.exchange("all_gather", rank_, table[rank_])));
    }
    void reduce_scatter(const torch::Tensor& table, const torch::Tensor& own) override {
      const auto tables = all_.exchange("reduce_scatter", rank_, table);
      own.copy_(torch::stack(tables).sum(0)[rank_]);
    }
    bool divides_experts() const override { return all_.divides_experts_; }
    torch::Tensor all_to_all(const torch::Tensor& x, const std::vector<int64_t>& sent,
                             const std::vector<int64_t>& received) override {
      const auto counts = all_.exchange("sizes", rank_, torch::tensor(sent, torch::kInt64));
      const auto rows = all_.exchange(kAllToAll, rank_, x);
      std::vector<torch::Tensor> own;
      for (std::size_t from = 0; from < rows.size(); ++from) {
        const auto* const sizes = counts[from].const_data_ptr<int64_t>();
        own.push_back(
            rows[from].split_with_sizes({sizes, counts.size()})[static_cast<std::size_t>(rank_)]);
        if (own.back().size(0) != received[from])
          throw std::logic_error("all_to_all: sizes differ");
      }
      return at::cat(own);
    }

   private:
    ThreadRanks& all_;
    int64_t rank_;
  };

  static torch::Tensor generator_state() {
    auto generator = at::globalContext().defaultGenerator(torch::kCPU);
    const std::lock_guard lock(generator.mutex());
    return generator.get_state().clone();
  }

  std::vector<torch::Tensor> exchange(const std::string& name, int64_t rank,
                                      const torch::Tensor& x) {
    if (!x.is_contiguous()) throw std::logic_error(name + ": not contiguous");
    if (rank == 0) ++calls_[name];
    largest_tensor_ = std::max(largest_tensor_, x.numel());
    // The other one of two tables: a rank may be one collective ahead of the last.
    auto& values = values_[static_cast<std::size_t>(rounds_[rank]++ % 2)];
    values.resize(static_cast<std::size_t>(size_));
    values[static_cast<std::size_t>(rank)] = x.detach().clone();
    pass_turn(rank);
    take_turn(rank);
    for (const auto& value : values) {
      if (name != kAllToAll && value.sizes() != x.sizes())
        throw std::logic_error(name + ": shapes differ");
    }
    return values;
  }

  void take_turn(int64_t rank) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return turn_ == rank || failure_; });
    if (failure_) throw std::runtime_error("another rank failed");
    auto generator = at::globalContext().defaultGenerator(torch::kCPU);
    const std::lock_guard own(generator.mutex());
    generator.set_state(generators_[static_cast<std::size_t>(rank)]);
  }

  void pass_turn(int64_t rank) {
    generators_[static_cast<std::size_t>(rank)] = generator_state();
    const std::lock_guard lock(mutex_);
    turn_ = (rank + 1) % size_;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t turn_ = 0;
  std::exception_ptr failure_;
  std::vector<torch::Tensor> generators_;
  std::vector<torch::Tensor> values_[2];
  std::map<int64_t, int64_t> rounds_;
  std::map<std::string, int> calls_;
  int64_t largest_tensor_ = 0;
  int64_t size_;
  bool divides_sequence_, divides_experts_;
};

}  // namespace ddp::train::test
