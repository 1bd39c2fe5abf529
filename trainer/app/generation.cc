#include "trainer/app/generation.h"

#include <fmt/format.h>

#include <cstdio>

namespace ddp::train {

void report_speed(int64_t tokens, std::chrono::steady_clock::duration time, torch::Device device,
                  const GraphUse& graphs) {
  const double seconds = std::chrono::duration<double>(time).count();
  if (tokens == 0) return;
  std::fflush(stdout);
  fmt::print(stderr, "generate: {} tokens in {:.3f} s, {:.1f} tokens/s on {}\n", tokens, seconds,
             static_cast<double>(tokens) / seconds, device.is_cuda() ? "cuda" : "cpu");
  if (graphs.replays > 0)
    fmt::print(stderr, "CUDA graphs: the launches of a token were replayed as one in {} steps\n",
               graphs.replays);
  if (!graphs.why_not.empty())
    fmt::print(stderr, "CUDA graphs: not used{}; {}\n", graphs.replays > 0 ? " from then on" : "",
               graphs.why_not);
}

}  // namespace ddp::train
