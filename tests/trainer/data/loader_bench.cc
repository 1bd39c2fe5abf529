// How fast batches are made, and nothing else: ddp_loader_bench TEXT BLOCK BATCH BATCHES
#include <fmt/format.h>

#include <chrono>
#include <ctime>
#include <string>

#include "trainer/data/data_loader.h"
#include "trainer/data/text/text_dataset.h"

int main(int argc, char** argv) {
  using namespace ddp::train;
  using Clock = std::chrono::steady_clock;
  if (argc != 5) return 2;
  DataConfig config;
  config.path = argv[1];
  config.block_size = std::stoll(argv[2]);
  config.train_split = 1.0;
  config.stride = {false, 1.0};
  const int64_t batch = std::stoll(argv[3]);
  const int64_t batches = std::stoll(argv[4]);
  const TextDataset text(config, nullptr, batch);
  const DistributedSampler sampler(text.training().size(), batch, 1, 1337);
  DataLoader loader(text.training(), sampler, {}, {.batch_size = batch});
  const auto begin = Clock::now();
  const std::clock_t processor = std::clock();
  int64_t tokens = 0;
  for (int64_t i = 0; i < batches; ++i) tokens += loader.next()[kInputs].numel();
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  const double used = static_cast<double>(std::clock() - processor) / CLOCKS_PER_SEC;
  fmt::print("{} tokens, {:.6f} s, {:.6f} s of processor time\n", tokens, seconds, used);
  return 0;
}
