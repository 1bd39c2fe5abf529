#include "trainer/task/evaluator.h"

#include <cstdio>
#include "tests/support/catch.h"

#include "tests/trainer/test_model.h"

namespace ddp::train {
namespace {

// Standard output of `ranks` real processes of the probe.
std::string probe(int ranks, const std::string& what) {
  const std::string command = std::string(DDP_RUN) +
                              " --standalone --nproc_per_node=" + std::to_string(ranks) + " " +
                              DDP_RANK_PROBE + " " + what + " 2>/dev/null";
  // NOLINTNEXTLINE(bugprone-command-processor): the words are the test's own
  FILE* pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string text;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) text += static_cast<char>(c);
  REQUIRE(::pclose(pipe) == 0);
  return text;
}

std::string letters(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += static_cast<char>('a' + (i * i + i / 7) % 26);
  return text;
}

}  // namespace

TEST_CASE("evaluation gives the same digits for 1, 2, 3 and 4 ranks, to the last bit") {
  const test::TempDir dir;
  const std::string path = dir.write("text", letters(1234));
  const std::string one = probe(1, "evaluate " + path);
  CHECK(one.find(" 616\n") != std::string::npos);  // 617 characters, all but the first are targets
  for (const int ranks : {2, 3, 4}) CHECK(probe(ranks, "evaluate " + path) == one);
}

TEST_CASE(
    "evaluation is the token-weighted mean over the whole part, without dropout, and restores the "
    "mode") {
  const test::TempDir dir;
  DataConfig data;
  data.path = dir.write("text", letters(300));
  data.block_size = 16;
  data.train_split = 0.5;
  const CharDataset dataset(data);
  GPT model(test::tiny_config(), dataset.vocabulary().size(), 16, 5);
  model->train();
  ProcessGroup alone;
  const EvalResult result =
      *evaluate(model, dataset.evaluation(), 4, alone, torch::kCPU, std::nullopt);
  CHECK(model->is_training());
  CHECK(result.tokens == 149);

  // The same, one window at a time.
  const torch::NoGradGuard no_grad;
  model->eval();
  double sum = 0;
  const auto tokens = dataset.evaluation().tokens;
  for (std::size_t start = 0; start + 1 < tokens.size(); start += 16) {
    const std::size_t length = std::min<std::size_t>(16, tokens.size() - 1 - start);
    std::vector<int64_t> window(tokens.begin() + static_cast<std::ptrdiff_t>(start),
                                tokens.begin() + static_cast<std::ptrdiff_t>(start + length + 1));
    const auto all = torch::tensor(window).unsqueeze(0);
    sum += model->loss_sum(all.slice(1, 0, -1), all.slice(1, 1)).item<double>();
  }
  CHECK(result.loss == Approx(sum / 149).epsilon(1e-6));
}

TEST_CASE("a rank that wants to stop ends the evaluation of all after one batch") {
  const test::TempDir dir;
  const std::string path = dir.write("text", letters(1234));
  CHECK(probe(2, "stop_evaluation " + path) == "stopped, asked 1\n");
  CHECK(probe(3, "stop_evaluation " + path) == "stopped, asked 1\n");
}

TEST_CASE("ranks with different models are refused by name of the cause") {
  CHECK_THAT(probe(2, "mismatch"),
             Catch::Contains("refused: the ranks do not hold the same model"));
}

TEST_CASE("construction of DistributedDataParallel gives every rank the weights of rank 0") {
  CHECK(probe(3, "broadcast") == "equal\n");
}

}  // namespace ddp::train
