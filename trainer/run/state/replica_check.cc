#include "trainer/run/state/replica_check.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <utility>

#include "trainer/parallel/device/device_wait.h"
#include "trainer/runtime/files/xxh3.h"

namespace ddp::train {
namespace {

/// Hashes a tensor on the CPU.
int64_t digest_of(const torch::Tensor& tensor) {
  constexpr std::size_t kDigits = 16;
  const auto bytes = tensor.contiguous();
  const std::string hex = xxh3_hex(bytes.const_data_ptr(), bytes.nbytes());
  uint64_t value = 0;
  std::from_chars(hex.data(), hex.data() + kDigits, value, 16);
  return static_cast<int64_t>(value);
}

// Each is copied while the one before it is digested: host memory for two of them is enough.
torch::Tensor digests_of(const std::vector<NamedTensor>& tensors) {
  auto digests = torch::empty({static_cast<int64_t>(tensors.size())}, torch::kInt64);
  auto* const out = digests.mutable_data_ptr<int64_t>();
  HostCopy next;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const HostCopy copy = i == 0 ? begin_to_host(tensors[i].tensor) : std::move(next);
    if (i + 1 < tensors.size()) next = begin_to_host(tensors[i + 1].tensor);
    wait_for_device(copy.copied);
    out[i] = digest_of(copy.tensor);
  }
  return digests;
}

}  // namespace

std::optional<ReplicaDifference> find_difference(const std::vector<NamedTensor>& tensors,
                                                 ProcessGroup& group,
                                                 const std::function<void()>& before_wait) {
  const auto count = static_cast<int64_t>(tensors.size());
  if (count == 0) return std::nullopt;
  const auto own = digests_of(tensors);
  before_wait();
  auto first_rank = own.clone();
  group.broadcast({first_rank});
  const auto differing = (own != first_rank).nonzero();
  const int64_t first = differing.numel() == 0 ? count : differing[0][0].item<int64_t>();
  const auto firsts = group.gather_doubles(static_cast<double>(first));
  const auto least = std::min_element(firsts.begin(), firsts.end());
  if (static_cast<int64_t>(*least) == count) return std::nullopt;
  return ReplicaDifference{tensors[static_cast<std::size_t>(*least)].name,
                           static_cast<int>(least - firsts.begin())};
}

}  // namespace ddp::train
