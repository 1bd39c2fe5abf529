#include "trainer/run/replica_check.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "trainer/parallel/device_wait.h"
#include "trainer/runtime/files/xxh3.h"

namespace ddp::train {
namespace {

int64_t digest_of(const torch::Tensor& tensor) {
  constexpr std::size_t kDigits = 16;
  const auto bytes = tensor.detach().to(torch::kCPU).contiguous();
  const std::string hex = xxh3_hex(bytes.const_data_ptr(), bytes.nbytes());
  uint64_t value = 0;
  std::from_chars(hex.data(), hex.data() + kDigits, value, 16);
  return static_cast<int64_t>(value);
}

}  // namespace

std::optional<ReplicaDifference> find_difference(const std::vector<NamedTensor>& tensors,
                                                 ProcessGroup& group,
                                                 const std::function<void()>& before_wait) {
  const auto count = static_cast<int64_t>(tensors.size());
  auto own = torch::empty({count}, torch::kInt64);
  if (count > 0) wait_for_device(tensors.front().tensor.device());
  for (int64_t i = 0; i < count; ++i)
    own[i] = digest_of(tensors[static_cast<std::size_t>(i)].tensor);
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
