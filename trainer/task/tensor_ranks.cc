#include "trainer/task/tensor_ranks.h"

#include <memory>

namespace ddp::train {
namespace {

class GroupRanks : public TensorRanks {
 public:
  GroupRanks(ProcessGroup& group, bool divides_sequence, bool divides_experts)
      : group_(group), divides_sequence_(divides_sequence), divides_experts_(divides_experts) {}

  int64_t rank() const override { return group_.rank(); }
  int64_t size() const override { return group_.size(); }
  bool divides_sequence() const override { return divides_sequence_; }
  bool divides_experts() const override { return divides_experts_; }
  void sum(const torch::Tensor& x) override { group_.all_reduce_sum(x); }
  void largest(const torch::Tensor& x) override { group_.all_reduce_max(x); }
  void all_gather(const torch::Tensor& table) override {
    rows(table.device()).all_gather(table).wait();
  }
  void reduce_scatter(const torch::Tensor& table, const torch::Tensor& own) override {
    rows(table.device()).reduce_scatter(table, own, /*add=*/false).wait();
  }
  torch::Tensor all_to_all(const torch::Tensor& x, const std::vector<int64_t>& sent,
                           const std::vector<int64_t>& received) override {
    return group_.all_to_all(x, sent, received);
  }

 private:
  RowCollectives& rows(torch::Device device) {
    if (!rows_) rows_ = group_.row_collectives(device);
    return *rows_;
  }

  ProcessGroup& group_;
  const bool divides_sequence_, divides_experts_;
  std::shared_ptr<RowCollectives> rows_;
};

}  // namespace

TensorRanksPtr make_tensor_ranks(ProcessGroup& group, bool divides_sequence) {
  return c10::make_intrusive<GroupRanks>(group, divides_sequence, /*divides_experts=*/false);
}

TensorRanksPtr make_expert_ranks(ProcessGroup& group) {
  return c10::make_intrusive<GroupRanks>(group, /*divides_sequence=*/false,
                                         /*divides_experts=*/true);
}

}  // namespace ddp::train
