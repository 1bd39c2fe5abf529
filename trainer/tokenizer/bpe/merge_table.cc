#include "trainer/tokenizer/bpe/merge_table.h"

#include <algorithm>
#include <bit>

namespace ddp::train {

MergeTable::MergeTable(const std::vector<Merge>& merges) {
  const std::size_t capacity = std::bit_ceil(std::max<std::size_t>(2 * merges.size(), 2));
  slots_.resize(capacity);
  mask_ = capacity - 1;
  shift_ = 64U - static_cast<unsigned>(std::countr_zero(capacity));
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const uint64_t key = key_of(merges[rank].left, merges[rank].right);
    std::size_t at = slot_of(key);
    while (slots_[at].key != key && slots_[at].key != kEmpty) at = (at + 1) & mask_;
    slots_[at] = {
        key, (static_cast<RankedMerge>(rank) << 32U) | static_cast<uint32_t>(merges[rank].result)};
  }
}

}  // namespace ddp::train
