#include "launcher/agent/failure_order.h"

#include <sys/stat.h>

#include <algorithm>
#include <climits>
#include <tuple>

namespace ddp::launch {
namespace {

// Nanoseconds; the largest value when there is no file.
long long age_of(const std::string& error_file) {
  struct stat status {};
  if (error_file.empty() || ::stat(error_file.c_str(), &status) != 0) return LLONG_MAX;
  return status.st_mtim.tv_sec * 1'000'000'000LL + status.st_mtim.tv_nsec;
}

bool outranks(const ProcessFailure& a, const ProcessFailure& b) {
  const auto key = [](const ProcessFailure& failure) {
    return std::tuple(failure.exit.signal == 0, age_of(failure.error_file));
  };
  return key(a) < key(b);
}

}  // namespace

void order_failures(std::vector<ProcessFailure>& batch) {
  std::stable_sort(
      batch.begin(), batch.end(),
      [](const ProcessFailure& a, const ProcessFailure& b) { return a.rank < b.rank; });
  std::stable_sort(batch.begin(), batch.end(), outranks);
}

void add_simultaneous(std::vector<ProcessFailure>& failures,
                      const std::vector<ProcessFailure>& batch) {
  failures.insert(failures.end(), batch.begin(), batch.end());
  std::stable_sort(failures.begin(), failures.end(), outranks);
}

bool wrote_earlier(const std::string& error_file, const ProcessFailure& failure) {
  const long long own = age_of(failure.error_file);
  return own != LLONG_MAX && age_of(error_file) < own;
}

}  // namespace ddp::launch
