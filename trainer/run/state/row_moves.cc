#include "trainer/run/state/row_moves.h"

#include <algorithm>
#include <map>
#include <stdexcept>

namespace ddp::train {
namespace {

/// A moved part in the table of all ranks' parts: in the row of its sender.
struct Placed {
  Move move;
  int64_t at = 0;
};

/// Elements [begin, end) of what this rank holds, as one dense tensor.
torch::Tensor own_part(const DividedTensor& cut, int64_t begin, int64_t end) {
  for (const auto& [first, values] : cut.own) {
    if (begin < first || end > first + values.numel()) continue;
    if (begin == first && end == first + values.numel()) return values;
    return values.reshape(-1).narrow(0, begin - first, end - begin);
  }
  throw std::logic_error("snapshot: this rank lacks elements of " + cut.name);
}

class Mover {
 public:
  Mover(const std::vector<DividedTensor>& cuts, int rank, int ranks) : rank_(rank) {
    std::vector<int64_t> sent(static_cast<std::size_t>(ranks), 0);
    for (const DividedTensor& cut : cuts) {
      auto& placed = placed_.emplace_back();
      for (const Move& move : moves_between(cut.held, cut.saved)) {
        auto& at = sent[static_cast<std::size_t>(move.from)];
        placed.push_back({move, at});
        at += move.end - move.begin;
      }
    }
    longest_ = *std::max_element(sent.begin(), sent.end());
  }

  void exchange(const std::vector<DividedTensor>& cuts, RowCollectives& rows, torch::Device device,
                int ranks) {
    if (longest_ == 0) return;
    const torch::NoGradGuard no_grad;
    table_ = torch::zeros({ranks, longest_}, device);
    for (std::size_t i = 0; i < cuts.size(); ++i) {
      for (const Placed& part : placed_[i]) {
        if (part.move.from != rank_) continue;
        const auto values = own_part(cuts[i], part.move.begin, part.move.end);
        table_[rank_].narrow(0, part.at, values.numel()).copy_(values.reshape(-1));
      }
    }
    rows.all_gather(table_).wait();
  }

  /// What this rank saves of cut `i`, from `begin` to `end`.
  std::vector<torch::Tensor> parts(const DividedTensor& cut, std::size_t i, int64_t begin,
                                   int64_t end) const {
    std::map<int64_t, torch::Tensor> parts;
    for (const ElementRange& range : cut.held) {
      const int64_t first = std::max(range.begin, begin);
      const int64_t last = std::min(range.end, end);
      if (range.rank == rank_ && first < last) parts[first] = own_part(cut, first, last);
    }
    for (const Placed& part : placed_[i]) {
      if (part.move.to != rank_) continue;
      parts[part.move.begin] =
          table_[part.move.from].narrow(0, part.at, part.move.end - part.move.begin).to(cut.type);
    }
    std::vector<torch::Tensor> in_order;
    for (auto& [first, values] : parts) in_order.push_back(std::move(values));
    return in_order;
  }

 private:
  int rank_;
  std::vector<std::vector<Placed>> placed_;  // of each cut
  int64_t longest_ = 0;
  torch::Tensor table_;
};

}  // namespace

std::vector<StatePiece> pieces_by_rows(const std::vector<DividedTensor>& cuts, RowCollectives& rows,
                                       torch::Device device, int rank, int ranks) {
  Mover mover(cuts, rank, ranks);
  mover.exchange(cuts, rows, device, ranks);
  std::vector<StatePiece> pieces;
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    const DividedTensor& cut = cuts[i];
    for (const ElementRange& saved : cut.saved) {
      if (saved.rank != rank) continue;
      const int64_t row = row_elements(cut.shape);
      pieces.push_back({cut.name, cut.shape,
                        Box::rows(cut.shape, saved.begin / row, saved.end / row),
                        mover.parts(cut, i, saved.begin, saved.end)});
    }
  }
  return pieces;
}

}  // namespace ddp::train
