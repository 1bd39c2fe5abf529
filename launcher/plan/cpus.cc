#include "launcher/plan/cpus.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <set>

namespace ddp::launch {

std::vector<int> parse_cpu_list(const std::string& text) {
  constexpr int kMost = 1 << 16;
  std::set<int> cpus;
  const char* at = text.data();
  const char* end = text.data() + text.size();
  while (at < end) {
    int first = 0;
    const auto [after, error] = std::from_chars(at, end, first);
    int last = first;
    at = after;
    if (error == std::errc{} && at < end && *at == '-') {
      at = std::from_chars(at + 1, end, last).ptr;
    }
    if (error == std::errc{} && first >= 0) {
      for (int cpu = first; cpu <= std::min(last, kMost); ++cpu) cpus.insert(cpu);
    }
    at = std::find(at, end, ',');
    if (at < end) ++at;
  }
  return {cpus.begin(), cpus.end()};
}

std::vector<int> cpus_of_this_thread() {
  // The call fails on machines with more CPUs than the set holds: retry with a larger one.
  for (int most = 1024; most <= 1 << 18; most *= 4) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(most),
                                                               [](cpu_set_t* s) { CPU_FREE(s); });
    const std::size_t size = CPU_ALLOC_SIZE(most);
    if (::sched_getaffinity(0, size, set.get()) != 0) continue;
    std::vector<int> cpus;
    for (int cpu = 0; cpu < most; ++cpu) {
      if (CPU_ISSET_S(cpu, size, set.get())) cpus.push_back(cpu);
    }
    return cpus;
  }
  return {};
}

}  // namespace ddp::launch
