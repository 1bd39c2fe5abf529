// Ranks that share the layers of a model compute what one process does.
#include "trainer/model/blocks/tensor_parallel.h"

#include "tests/support/catch.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>

#include "tests/trainer/llama_kinds.h"
#include "tests/trainer/model/thread_ranks.h"
#include "tests/trainer/test_model.h"
#include "trainer/model/causal_architecture.h"
#include "trainer/model/causal_model.h"
#include "trainer/task/generate/generate.h"

namespace ddp::train::tensor_parallel_test {
namespace {

constexpr int64_t kBatch = 3, kLength = 16;

struct Case {
  std::string name;
  int64_t ranks = 2;
  int64_t vocab_size = 64;
  std::function<void(Config&)> change = [](Config&) {};
  bool packed = false;
  bool divides_sequence = false;
};

/// As a change of the configuration.
std::function<void(Config&)> llama(const std::string& kind) {
  return [kind](Config& config) {
    for (const auto& each : test::llama_kinds()) {
      if (each.name != kind) continue;
      config = test::whole_config(test::config_of(each.shape), kLength);
    }
  };
}

Config config_of(const Case& each) {
  Config config;
  config.gpt = test::tiny_config(2, 4, 32);
  config.gpt.embd_pdrop = config.gpt.resid_pdrop = config.gpt.attn_pdrop = 0.0;
  config.data.block_size = kLength;
  each.change(config);
  return config;
}

struct Batch3 {
  explicit Batch3(const Case& each)
      : tokens(test::random_tokens(kBatch, kLength, each.vocab_size, 11)),
        targets(test::random_tokens(kBatch, kLength, each.vocab_size, 12)) {
    targets[1].slice(0, 3, 9).fill_(-1);
    targets[0][0] = each.vocab_size - 1;
    if (each.packed)
      positions = torch::cat({torch::arange(6), torch::arange(10)}).expand({kBatch, kLength});
  }
  torch::Tensor tokens, targets, positions;
};

using Gradients = std::map<std::string, torch::Tensor>;

struct Outcome {
  torch::Tensor loss;
  Gradients gradients;
  torch::Tensor evaluation;
  torch::Tensor logits;
};

/// One training step's gradients, an evaluation and logits, in `type`.
Outcome outcome_of(CausalModel& model, const Case& each, torch::ScalarType type) {
  const Batch3 batch(each);
  model.to(type);
  model.train();
  const auto loss = model.loss(batch.tokens, batch.targets, batch.positions);
  loss.backward();
  model.sum_partial_gradients();
  Outcome outcome{loss.detach(), {}, {}, {}};
  for (const auto& item : model.named_parameters())
    outcome.gradients[item.key()] = item.value().grad().clone();
  const torch::NoGradGuard no_grad;
  model.eval();
  outcome.evaluation = model.evaluation_sums(batch.tokens, batch.targets, batch.positions);
  outcome.logits = model.forward(batch.tokens, batch.positions);
  return outcome;
}

double difference(const torch::Tensor& a, const torch::Tensor& b) {
  REQUIRE(a.sizes() == b.sizes());
  const double scale = std::max(1e-3, b.abs().max().item<double>());
  return (a - b).abs().max().item<double>() / scale;
}

struct Compared {
  double loss = 0, gradients = 0, evaluation = 0, logits = 0;
  std::string worst;
  bool replicas_equal = true;
};

Compared compare(const Case& each, torch::ScalarType type) {
  const Config config = config_of(each);
  const auto layout = causal_architecture(config).layout(config, each.vocab_size);
  torch::manual_seed(99);
  const auto whole = outcome_of(*make_causal_model(config, each.vocab_size, 5), each, type);
  torch::manual_seed(99);
  test::ThreadRanks threads(each.ranks, each.divides_sequence);
  std::vector<Outcome> outcomes(static_cast<std::size_t>(each.ranks));
  threads.run([&](const TensorRanksPtr& ranks) {
    outcomes[static_cast<std::size_t>(ranks->rank())] =
        outcome_of(*make_causal_model(config, each.vocab_size, 5, ranks), each, type);
  });
  Compared compared;
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    const Outcome& own = outcomes[rank];
    compared.loss = std::max(compared.loss, difference(own.loss, whole.loss));
    compared.logits = std::max(compared.logits, difference(own.logits, whole.logits));
    compared.evaluation =
        std::max(compared.evaluation, difference(own.evaluation, whole.evaluation));
    for (const WeightPlace& place : layout) {
      const auto part = layout_of(place, static_cast<int64_t>(rank), each.ranks);
      const double off =
          difference(own.gradients.at(place.name), own_part(whole.gradients.at(place.name), part));
      if (off > compared.gradients) compared.worst = place.name;
      compared.gradients = std::max(compared.gradients, off);
      compared.replicas_equal =
          compared.replicas_equal &&
          (place.split != Split::kNone ||
           torch::equal(own.gradients.at(place.name), outcomes[0].gradients.at(place.name)));
    }
  }
  return compared;
}

std::vector<Case> cases() {
  const auto untied = [](Config& config) { config.gpt.tie_weights = false; };
  const auto tied = [](Config& config) { config.gpt.tie_weights = true; };
  const auto chunks = [](Config& config) {
    config.gpt.tie_weights = true;
    config.gpt.loss_chunk_size = {false, 7};
    config.gpt.pad_vocab_to_multiple_of = {false, 16};
  };
  const auto recomputed = [](Config& config) { config.gpt.activation_checkpointing = true; };
  return {{"untied", 2, 64, untied, false},
          {"tied", 2, 64, tied, false},
          {"four ranks", 4, 64, tied, false},
          {"a vocabulary that does not divide", 2, 65, tied, false},
          {"on four ranks", 4, 67, untied, false},
          {"fewer tokens than ranks can share evenly", 4, 5, untied, false},
          {"loss in padded chunks", 4, 65, chunks, false},
          {"activation checkpointing", 2, 64, recomputed, false},
          {"packed documents", 2, 64, tied, true},
          {"llama2", 4, 65, llama("llama2"), false},
          {"llama3", 2, 64, llama("llama3"), true},
          {"qwen2", 2, 65, llama("qwen2"), false},
          {"qwen3", 2, 64, llama("qwen3"), false},
          {"mistral", 2, 65, llama("mistral"), true},
          {"phi3", 2, 64, llama("phi3"), false},
          {"gemma2", 2, 65, llama("gemma2"), false},
          {"gemma3_text", 2, 64, llama("gemma3_text"), true},
          {"mixtral", 2, 65, llama("mixtral"), false},
          {"qwen3_moe", 2, 64, llama("qwen3_moe"), true}};
}

}  // namespace

TEST_CASE("in float64, ranks that share layers compute the loss and the gradients of one process") {
  for (Case each : cases()) {
    for (const bool divides_sequence : {false, true}) {
      each.divides_sequence = divides_sequence;
      const Compared compared = compare(each, torch::kFloat64);
      INFO(each.name << (divides_sequence ? ", by sequence: " : ": ") << compared.worst);
      CHECK(compared.loss < 1e-12);
      CHECK(compared.gradients < 1e-12);
      CHECK(compared.logits < 1e-12);
      CHECK(compared.evaluation < 1e-6);  // float32 sums
      CHECK(compared.replicas_equal);
    }
  }
}

TEST_CASE("the dropout masks of ranks that share layers are those of one process") {
  const auto dropped = [](Config& config) {
    config.gpt.embd_pdrop = config.gpt.resid_pdrop = config.gpt.attn_pdrop = 0.3;
  };
  const auto heads_of_16 = [&](Config& config) {  // the fused kernels'
    dropped(config);
    config.gpt.n_embd = 64;
  };
  const auto recomputed = [&](Config& config) {
    heads_of_16(config);
    config.gpt.activation_checkpointing = true;
  };
  for (const bool divided : {false, true}) {
    for (const int64_t ranks : {2, 4}) {
      INFO(ranks << " ranks" << (divided ? ", by sequence" : ""));
      const auto off = [&](const std::function<void(Config&)>& change, bool packed,
                           torch::ScalarType type) {
        return compare({"", ranks, 64, change, packed, divided}, type).gradients;
      };
      // torch's own dropout, whose masks of all heads are drawn.
      CHECK(off(dropped, false, torch::kFloat64) < 1e-12);
      CHECK(off(heads_of_16, false, torch::kFloat32) < 1e-4);
      CHECK(off(recomputed, false, torch::kFloat32) < 1e-4);
      CHECK(off(dropped, true, torch::kFloat32) < 1e-4);
    }
  }
}

TEST_CASE("initial weights of ranks that share layers are parts of those of one process") {
  const Case each{"", 4, 67, [](Config&) {}, false};
  const Config config = config_of(each);
  const auto whole = make_causal_model(config, each.vocab_size, 5)->named_parameters();
  const auto layout = causal_architecture(config).layout(config, each.vocab_size);
  test::ThreadRanks threads(each.ranks);
  std::map<std::string, int64_t> elements;
  threads.run([&](const TensorRanksPtr& ranks) {
    const auto model = make_causal_model(config, each.vocab_size, 5, ranks);
    CHECK(model->parameter_count() == elements_of(layout));
    const auto later = make_causal_model(config, each.vocab_size, std::nullopt, ranks);
    for (const WeightPlace& place : layout)
      later->named_parameters()[place.name].set_data(whole[place.name].detach().clone());
    later->keep_own_parts();
    for (const WeightPlace& place : layout) {
      const auto expected =
          own_part(whole[place.name], layout_of(place, ranks->rank(), each.ranks));
      CHECK(torch::equal(model->named_parameters()[place.name], expected));
      CHECK(torch::equal(later->named_parameters()[place.name], expected));
      elements[place.name] += expected.numel();
    }
  });
  for (const WeightPlace& place : layout) {
    const int64_t copies = place.split == Split::kNone ? each.ranks : 1;
    CHECK(elements[place.name] == copies * whole[place.name].numel());
  }
}

TEST_CASE("an estimate counts the weights, gradients and optimizer state that rank 0 holds") {
  for (const auto& change : {std::function<void(Config&)>([](Config&) {}), llama("qwen3")}) {
    const Case each{"", 2, 65, change};
    Config config = config_of(each);
    int64_t held = 0;
    test::ThreadRanks threads(each.ranks);
    threads.run([&](const TensorRanksPtr& ranks) {
      if (ranks->rank() > 0) return;
      for (const auto& weight : make_causal_model(config, each.vocab_size, 5, ranks)->parameters())
        held += weight.numel();
    });
    config.distributed.tensor = each.ranks;
    std::map<std::string, int64_t> bytes;
    for (const auto& item :
         causal_architecture(config).memory_items(config, each.vocab_size, {false, each.ranks}))
      bytes[item.name] = item.bytes;
    CHECK(bytes.at("weights") == 4 * held);
    CHECK(bytes.at("gradients") == 4 * held);
    CHECK(bytes.at("optimizer") == 8 * held);
  }
}

TEST_CASE("a step takes four sums per layer, and no rank sees the logits of all tokens") {
  const Case each{"", 2, 4096,
                  [](Config& config) {
                    config.gpt.loss_chunk_size = {false, 24};
                  },
                  false};
  for (const int64_t layers : {2, 3}) {
    Config config = config_of(each);
    config.gpt.n_layer = layers;
    test::ThreadRanks threads(each.ranks);
    threads.run([&](const TensorRanksPtr& ranks) {
      const Batch3 batch(each);
      make_causal_model(config, each.vocab_size, 5, ranks)
          ->loss(batch.tokens, batch.targets)
          .backward();
    });
    constexpr int kChunks = 2;  // 48 rows
    const int outside = 2;      // the embedding; backward, the head's input
    CHECK(threads.calls().at("sum") == 4 * layers + outside + kChunks);
    CHECK(threads.calls().at("largest") == kChunks);
    CHECK(threads.calls().size() == 2);
    CHECK(threads.largest_tensor() == kBatch * kLength * config.gpt.n_embd);
  }
}

// With a chunk of its own share of the vocabulary rank 0 would take all rows at once, rank 1 not.
TEST_CASE("ranks with unequal shares of the vocabulary take the same chunks of the loss") {
  const Case each{"", 2, 1025, [](Config& config) { config.gpt = test::tiny_config(1, 2, 4); }};
  const Config config = config_of(each);
  constexpr int64_t kRows = (int64_t{256} << 20U) / (4 * 512);
  test::ThreadRanks threads(each.ranks);
  threads.run([&](const TensorRanksPtr& ranks) {
    const torch::NoGradGuard no_grad;
    const auto model = make_causal_model(config, each.vocab_size, 5, ranks);
    const auto targets = torch::zeros({kRows / kLength, kLength}, torch::kInt64);
    model->loss_of(torch::zeros({kRows / kLength, kLength, 4}), targets);
  });
  CHECK(threads.calls().at("largest") == 2);
}

TEST_CASE("by sequence, a layer takes eight collectives of the rows") {
  const Case each{"", 2, 4096};
  for (const int64_t layers : {2, 3}) {
    Config config = config_of(each);
    config.gpt.n_layer = layers;
    test::ThreadRanks threads(each.ranks, /*divides_sequence=*/true);
    threads.run([&](const TensorRanksPtr& ranks) {
      const Batch3 batch(each);
      const auto model = make_causal_model(config, each.vocab_size, 5, ranks);
      model->loss(batch.tokens, batch.targets).backward();
      model->sum_partial_gradients();
    });
    // The embedding's output and the head's input are one of each more.
    CHECK(threads.calls().at("reduce_scatter") == 4 * layers + 2);
    CHECK(threads.calls().at("all_gather") == 4 * layers + 2);
    CHECK(threads.calls().at("sum") == 2);  // in the loss, and of the norms' gradients
    CHECK(threads.largest_tensor() == kBatch * kLength * config.gpt.n_embd);
  }
}

TEST_CASE("ranks that share layers generate the text of one process") {
  const Case each{"", 2, 65, [](Config&) {}, false};
  const Config config = config_of(each);
  SamplingOptions options;
  options.max_new_tokens = 24;  // beyond the block
  options.seed = 3;
  const auto text_of = [&](const TensorRanksPtr& ranks) {
    const auto model = make_causal_model(config, each.vocab_size, 5, ranks);
    std::vector<int64_t> tokens;
    generate(*model, {1, 2, 3}, options, [&](int64_t token) { tokens.push_back(token); });
    return tokens;
  };
  const auto whole = text_of({});
  test::ThreadRanks threads(each.ranks);
  threads.run([&](const TensorRanksPtr& ranks) { CHECK(text_of(ranks) == whole); });
}

}  // namespace ddp::train::tensor_parallel_test
