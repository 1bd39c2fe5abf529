#include "trainer/parallel/collectives/row_collectives.h"

#include "trainer/parallel/device/collective_wait.h"

namespace ddp::train {
namespace {

using Work = c10::intrusive_ptr<c10d::Work>;

// torch 2.15 has renamed all three, and says of the old names that they are deprecated.
template <class Group>
Work reduce_scatter_by(Group& group, torch::Tensor out, torch::Tensor in) {
  if constexpr (requires { group.reduce_scatter_single(out, in); })
    return group.reduce_scatter_single(out, in);
  else
    return group._reduce_scatter_base(out, in);
}

template <class Group>
Work all_gather_by(Group& group, torch::Tensor out, torch::Tensor in) {
  if constexpr (requires { group.all_gather_single(out, in); })
    return group.all_gather_single(out, in);
  else
    return group._allgather_base(out, in);
}

template <class Group>
Work all_to_all_of(Group& group, torch::Tensor out, torch::Tensor in, std::vector<int64_t> sent,
                   std::vector<int64_t> received) {
  if constexpr (requires { group.all_to_all_single(out, in, received, sent); })
    return group.all_to_all_single(out, in, received, sent);
  else
    return group.alltoall_base(out, in, received, sent);
}

class NcclRows : public RowCollectives {
 public:
  explicit NcclRows(c10::intrusive_ptr<c10d::ProcessGroup> group) : group_(std::move(group)) {}

  RowWork reduce_scatter(const torch::Tensor& table, const torch::Tensor& own, bool add) override {
    if (!add) return RowWork(reduce_scatter_by(*group_, own, table.view(-1)));
    const auto sum = torch::empty_like(own);
    return RowWork(reduce_scatter_by(*group_, sum, table.view(-1)), [own, sum] { own.add_(sum); });
  }
  RowWork all_gather(const torch::Tensor& table) override {
    return RowWork(all_gather_by(*group_, table.view(-1), table[group_->getRank()]));
  }

 private:
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

void add_rows(const torch::Tensor& own, const torch::Tensor& rows, bool add) {
  for (int64_t rank = 0; rank < rows.size(0); ++rank) {
    if (rank == 0 && !add)
      own.copy_(rows[0]);
    else
      own.add_(rows[rank]);
  }
}

class GlooRows : public RowCollectives {
 public:
  explicit GlooRows(c10::intrusive_ptr<c10d::ProcessGroup> group) : group_(std::move(group)) {}

  RowWork reduce_scatter(const torch::Tensor& table, const torch::Tensor& own, bool add) override {
    const auto received = torch::empty_like(table);
    return RowWork(all_to_all_of(*group_, received, table, {}, {}),
                   [own, received, add] { add_rows(own, received, add); });
  }
  RowWork all_gather(const torch::Tensor& table) override {
    return RowWork(all_gather_by(*group_, table.view(-1), table[group_->getRank()].clone()));
  }

 private:
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

}  // namespace

void RowWork::wait() {
  if (!work_) return;
  const CollectiveWait waiting;
  const auto work = std::exchange(work_, {});
  const auto finish = std::exchange(finish_, {});  // with what it holds on to
  work->wait();
  const torch::NoGradGuard no_grad;
  if (finish) finish();
}

c10::intrusive_ptr<c10d::Work> all_to_all_by(c10d::Backend& backend, torch::Tensor out,
                                             torch::Tensor in, std::vector<int64_t> sent,
                                             std::vector<int64_t> received) {
  return all_to_all_of(backend, std::move(out), std::move(in), std::move(sent),
                       std::move(received));
}

std::unique_ptr<RowCollectives> make_row_collectives(c10::intrusive_ptr<c10d::ProcessGroup> group,
                                                     bool nccl) {
  if (nccl) return std::make_unique<NcclRows>(std::move(group));
  return std::make_unique<GlooRows>(std::move(group));
}

}  // namespace ddp::train
