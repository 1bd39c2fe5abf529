#include "trainer/task/evaluator.h"

#include <cmath>
#include "tests/support/catch.h"

#include "tests/trainer/parallel/probe_output.h"
#include "tests/trainer/test_model.h"
#include "trainer/data/text/text_dataset.h"
#include "trainer/task/causal_lm.h"

namespace ddp::train {
namespace {

using test::probe;

std::string letters(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += static_cast<char>('a' + (i * i + i / 7) % 26);
  return text;
}

}  // namespace

TEST_CASE("evaluation gives the same digits for 1, 2 and 3 ranks, to the last bit") {
  const test::TempDir dir;
  const std::string path = dir.write("text", letters(1234));
  const std::string one = probe(1, "evaluate " + path);
  CHECK(one.find(" 616\n") != std::string::npos);  // 617 characters, all but the first are targets
  for (const int ranks : {2, 3}) CHECK(probe(ranks, "evaluate " + path) == one);
}

TEST_CASE(
    "evaluation is the token-weighted mean over the whole part, without dropout, and restores the "
    "mode") {
  const test::TempDir dir;
  Config config;
  config.data.path = dir.write("text", letters(300));
  config.data.block_size = 16;
  config.data.train_split = 0.5;
  config.trainer.batch_size = 4;
  config.gpt = test::tiny_config();
  CausalLm task(config, nullptr);
  task.build_model(torch::kCPU, 5);
  ProcessGroup alone;
  const Metrics metrics =
      evaluate(task, *task.evaluation(), 4, alone, torch::kCPU, std::nullopt)->metrics;
  CHECK(task.model().is_training());
  CHECK(metrics.back() == std::pair<std::string, double>("tokens", 149.0));

  // The same, one window at a time.
  const torch::NoGradGuard no_grad;
  task.model().eval();
  auto& model = dynamic_cast<GPTImpl&>(task.model());
  double sum = 0;
  double right = 0;
  const TextDataset data(config.data);
  const TokenRange part = data.evaluation_range();
  for (int64_t start = part.first; start + 1 < part.last; start += 16) {
    std::vector<int64_t> window(
        static_cast<std::size_t>(std::min<int64_t>(16, part.last - 1 - start) + 1));
    data.tokens().copy(start, window);
    const auto all = torch::tensor(window).unsqueeze(0);
    const auto logits = model.forward(all.slice(1, 0, -1));
    sum += at::cross_entropy_loss(logits[0], all[0].slice(0, 1), {}, at::Reduction::Sum)
               .item<double>();
    right += (logits.argmax(-1) == all.slice(1, 1)).sum().item<double>();
  }
  CHECK(metrics.front().second == Approx(sum / 149).epsilon(1e-6));
  CHECK(metrics[1].second == Approx(std::exp(sum / 149)).epsilon(1e-6));
  CHECK(metrics[2].second == Approx(sum / 149 / std::log(2.0)).epsilon(1e-6));
  CHECK(metrics[3].second == right / 149);
}

TEST_CASE("a task computes the metrics that it names") {
  const test::TempDir dir;
  Config config;
  config.data.path = dir.write("text", letters(300));
  config.data.block_size = 16;
  config.gpt = test::tiny_config();
  const CausalLm task(config, nullptr);
  std::vector<std::string> names;
  for (const auto& [name, value] : task.metrics({1.0, 1.0, 1.0, 1.0})) names.push_back(name);
  for (const auto& name : task.metric_names()) CHECK_THAT(names, Catch::VectorContains(name));
}

TEST_CASE("a rank that wants to stop ends the evaluation of all after one batch") {
  const test::TempDir dir;
  const std::string path = dir.write("text", letters(1234));
  CHECK(probe(3, "stop_evaluation " + path) == "stopped, asked 1\n");
}

TEST_CASE("ranks with different models are refused by name of the cause") {
  CHECK_THAT(probe(2, "mismatch"),
             Catch::Contains("refused: the ranks do not hold the same model"));
}

TEST_CASE("construction of DistributedDataParallel gives every rank the weights of rank 0") {
  CHECK(probe(3, "broadcast") == "equal\n");
}

TEST_CASE("ranks that have read other tensors than rank 0, or none, get rank 0's") {
  const test::TempDir dir;
  CHECK(probe(3, "restore_unlike " + dir.path()) == "equal\n");
}

}  // namespace ddp::train
