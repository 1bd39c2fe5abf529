#include "launcher/rendezvous/round/epochs.h"

#include <algorithm>
#include <functional>

namespace ddp::launch {
namespace {

constexpr int kTenureBits = 36;
constexpr int kRangeBits = 20;
constexpr long long kMostTenures = 1'024;
constexpr long long kMostRounds = 1LL << 24;  // a round each minute for 30 years

}  // namespace

long long tenure_after(long long epoch, const std::string& host_id) {
  if (epoch < 0) return 0;
  const auto range = static_cast<long long>(std::hash<std::string>{}(host_id)&0xffffU);
  return (((epoch >> kTenureBits) + 1) << kTenureBits) | (range << kRangeBits);
}

bool may_precede(long long last, long long epoch) {
  return last >> kTenureBits < epoch >> kTenureBits || last >> kRangeBits == epoch >> kRangeBits;
}

long long granted_after(long long known, std::span<const long long> accepted) {
  long long last = known;
  for (const long long epoch : accepted) {
    if (epoch <= std::max(known, 0LL) + kMostRounds) last = std::max(last, epoch);
  }
  return last + 1;
}

bool can_follow(long long epoch, long long known) {
  return (epoch >> kTenureBits) - (std::max(known, 0LL) >> kTenureBits) <= kMostTenures;
}

}  // namespace ddp::launch
