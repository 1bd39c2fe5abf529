#include "launcher/agent/failure_order.h"

#include <algorithm>
#include <csignal>
#include <tuple>

namespace ddp::launch {
namespace {

constexpr long long kSecond = 1'000'000'000;
constexpr long long kNever = ErrorFile::kNever;
/// How long the kernel may take from a death to its report, while its peers already notice.
constexpr long long kTeardown = kSecond;

long long seen_at(const ProcessFailure& failure) {
  return static_cast<long long>(failure.time * static_cast<double>(kSecond));
}

// Libraries abort when a peer has failed, as NCCL's watchdog does; launchers and schedulers send
// SIGTERM to the remaining processes.
bool looks_secondary(int signal) { return signal == SIGABRT || signal == SIGTERM; }

enum class Likelihood { kKilled, kWroteErrorFile, kExited, kSecondary };

Likelihood likelihood_of(const ProcessFailure& failure, long long oldest_file) {
  const int signal = failure.exit.signal;
  const bool too_late = oldest_file != kNever && seen_at(failure) > oldest_file + kTeardown;
  if (signal != 0 && !looks_secondary(signal) && !too_late) return Likelihood::kKilled;
  if (failure.error_file.written() != kNever) return Likelihood::kWroteErrorFile;
  return signal == 0 ? Likelihood::kExited : Likelihood::kSecondary;
}

void sort_by_likelihood(std::vector<ProcessFailure>& failures, bool seen_at_once) {
  long long oldest_file = kNever;
  for (const auto& failure : failures)
    oldest_file = std::min(oldest_file, failure.error_file.written());
  const auto key = [&](const ProcessFailure& failure) {
    auto likelihood = likelihood_of(failure, oldest_file);
    if (!seen_at_once && likelihood == Likelihood::kSecondary) likelihood = Likelihood::kExited;
    return std::tuple(likelihood, failure.error_file.written());
  };
  std::stable_sort(
      failures.begin(), failures.end(),
      [&](const ProcessFailure& a, const ProcessFailure& b) { return key(a) < key(b); });
}

}  // namespace

void order_failures(std::vector<ProcessFailure>& batch) {
  std::stable_sort(
      batch.begin(), batch.end(),
      [](const ProcessFailure& a, const ProcessFailure& b) { return a.rank < b.rank; });
  sort_by_likelihood(batch, true);
}

void add_simultaneous(std::vector<ProcessFailure>& failures,
                      const std::vector<ProcessFailure>& batch) {
  failures.insert(failures.end(), batch.begin(), batch.end());
  sort_by_likelihood(failures, false);
}

bool wrote_earlier(const ErrorFile& error_file, const ProcessFailure& failure) {
  const long long written = error_file.written();
  if (written == kNever) return false;
  const long long own = failure.error_file.written();
  if (own != kNever) return written < own;
  const bool killed = failure.exit.signal != 0 && !looks_secondary(failure.exit.signal);
  const long long allowance = killed || !failure.is_worker() ? kTeardown : 0;
  return written + allowance < seen_at(failure);
}

}  // namespace ddp::launch
