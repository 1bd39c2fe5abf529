// How long composing, resolving and typing a configuration takes: ddp_config_bench FILE
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "trainer/config/show/config_show.h"

int main(int argc, char** argv) {
  using Clock = std::chrono::steady_clock;
  constexpr int kTimes = 301;
  if (argc != 2) return 2;
  const auto source = ddp::train::ConfigSource::of_file(argv[1]);
  ddp::train::ShowOptions options;
  options.resolve = true;
  std::vector<double> milliseconds;
  for (int i = 0; i < kTimes; ++i) {
    const auto start = Clock::now();
    ddp::train::show_config(source, {"trainer_config.seed=1"}, options);
    milliseconds.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  const double first = milliseconds.front();
  std::sort(milliseconds.begin(), milliseconds.end());
  std::printf("load and resolve: first %.2f ms, median of %d %.2f ms\n", first, kTimes,
              milliseconds[kTimes / 2]);
  return 0;
}
