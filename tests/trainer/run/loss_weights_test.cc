// A micro-batch without targets passes through every task's model and changes nothing.
#include "trainer/run/strategy/loss_weights.h"

#include "tests/support/catch.h"

#include "tests/trainer/test_model.h"
#include "trainer/data/data_loader.h"
#include "trainer/task/task.h"

namespace ddp::train {
namespace {

using test::TempDir;

std::string some_lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += i % 3 == 0 ? "the oak and the brook and bread\n" : "the brook ran\n";
  return text;
}

/// Two gray images of 2 x 2 for each of two labels, in MNIST's format.
void write_images(const TempDir& dir) {
  const std::string zero(1, '\0');
  const auto number = [&](char value) { return zero + zero + zero + value; };
  dir.write("images-idx3-ubyte",
            zero + zero + '\x08' + '\x03' + number(4) + number(2) + number(2) + "abcdefghijklmnop");
  dir.write("labels-idx1-ubyte",
            zero + zero + '\x08' + '\x01' + number(4) + zero + '\x01' + zero + '\x01');
}

Config tiny_task_config(TaskKind kind, const TempDir& dir) {
  Config config;
  config.task = kind;
  config.trainer.batch_size = 2;
  config.data.train_split = 1.0;
  config.data.block_size = 8;
  config.gpt = test::tiny_config();
  config.bert = {};
  config.bert.n_layer = 1;
  config.bert.n_head = 2;
  config.bert.n_embd = 16;
  config.bert.intermediate = 32;
  config.data.min_characters = 0;
  config.data.tokenizer = dir.write(
      "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\noak\nand\nbrook\nbread\nran\n");
  switch (kind) {
    case TaskKind::kCausalLm:
      config.data.tokenizer = "char";
      [[fallthrough]];
    case TaskKind::kMaskedLm:
      config.data.path = dir.write("text.txt", some_lines(20));
      break;
    case TaskKind::kPreference:
      break;
    case TaskKind::kTextClassification:
      config.data.path =
          dir.write("table.csv", "text,label\nthe oak,a\nthe brook,b\nthe bread ran,a\n");
      break;
    case TaskKind::kImageClassification:
      write_images(dir);
      config.data.path = dir.file("images-idx3-ubyte");
      config.image.network = ImageNetworkKind::kDense;
      config.image.width = 4;
      config.image.n_layer = 1;
  }
  return config;
}

std::vector<torch::Tensor> gradients_of(const Task& task) {
  std::vector<torch::Tensor> gradients;
  for (const auto& p : task.parameters()) gradients.push_back(p.tensor.grad().clone());
  return gradients;
}

/// The same tensors with no target left where a target can be ignored.
Batch with_ignored_targets(const Batch& batch, TaskKind kind) {
  Batch ignored = batch;
  ignored.target_count = 0;
  const bool has_ignore_index =
      kind == TaskKind::kCausalLm || kind == TaskKind::kImageClassification;
  if (has_ignore_index) ignored.tensors[kTargets] = torch::full_like(batch[kTargets], -1);
  if (kind != TaskKind::kMaskedLm) return ignored;
  for (const char* name : {kTargets, kTargetPositions})
    ignored.tensors[name] = batch[name].slice(0, 0, 0);
  return ignored;
}

void check_adds_nothing(TaskKind kind) {
  INFO(task_name(kind));
  const TempDir dir;
  const Config config = tiny_task_config(kind, dir);
  const auto task = make_task(config, nullptr);
  task->build_model(torch::kCPU, 5);
  ProcessGroup alone;
  const LossWeights weights(task->training().targets(), 2, 1, alone, 1);
  const auto pass = [&](const Batch& batch) {
    weights.for_backward({task->loss(batch), batch.target_count}).backward();
  };
  const Batch batch = batch_of(task->training(), 0, 2);
  task->model().eval();  // without dropout
  pass(batch);
  const auto before = gradients_of(*task);
  Batch weightless = batch;
  weightless.target_count = 0;
  pass(weightless);
  pass(with_ignored_targets(batch, kind));
  const auto after = gradients_of(*task);
  for (std::size_t i = 0; i < before.size(); ++i) CHECK(torch::equal(before[i], after[i]));
}

}  // namespace

TEST_CASE("a micro-batch without targets goes through each task's model and adds nothing") {
  check_adds_nothing(TaskKind::kCausalLm);
  check_adds_nothing(TaskKind::kMaskedLm);
  check_adds_nothing(TaskKind::kTextClassification);
  check_adds_nothing(TaskKind::kImageClassification);
}

TEST_CASE("micro-batches without targets leave the loss and the gradients of a step as they are") {
  ProcessGroup alone;
  const LossWeights weights({4, /*always=*/false}, 2, 3, alone, 1);
  const auto gradient_of = [&](const std::vector<std::pair<double, int64_t>>& losses) {
    const auto leaf = torch::ones({1}, torch::TensorOptions().requires_grad(true));
    std::vector<MicroBatchLoss> done;
    for (const auto& [factor, targets] : losses) {
      const MicroBatchLoss loss{(leaf * factor).sum(), targets};
      weights.for_backward(loss).backward();
      done.push_back({loss.mean.detach(), targets});
    }
    weights.correct({leaf.grad()}, done);
    return std::pair(leaf.grad().item<double>(), weights.step_loss(done));
  };
  const auto [gradient, loss] = gradient_of({{2.0, 8}, {5.0, 3}, {7.0, 1}});
  CHECK(gradient == Approx((2.0 * 8 + 5 * 3 + 7) / 12).epsilon(1e-6));
  CHECK(loss == Approx((2.0 * 8 + 5 * 3 + 7) / 12).epsilon(1e-6));
  CHECK(gradient_of({{2.0, 8}, {3.0, 0}, {5.0, 3}, {7.0, 1}, {9.0, 0}}) ==
        std::pair(gradient, loss));
  CHECK(gradient_of({{2.0, 0}}).first == 0.0);
}

}  // namespace ddp::train
