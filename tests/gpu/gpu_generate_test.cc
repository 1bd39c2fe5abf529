// trainer generate on a GPU: with CUDA graphs the text of single launches.
#include <filesystem>
#include <map>
#include "tests/support/catch.h"

#include "tests/e2e/conversations.h"
#include "tests/gpu/gpu_job.h"

namespace ddp::test {
namespace {

using Catch::Contains;

const Words kLongContext = {"data_config.block_size=300", "data_config.stride=300",
                            "trainer_config.max_steps=4"};

/// The ledger of the place's only process on a GPU since forget_ledger().
nlohmann::json last_ledger(const Workspace& place) { return ledgers_of(place).at(0); }
void forget_ledger(const Workspace& place) { std::filesystem::remove(place / "ledger.json"); }

Finished generated(const Workspace& place, const Words& options, const std::string& graphs,
                   const std::map<std::string, std::string>& faults = {}) {
  const Words words = {"generate",      "--snapshot",    "snapshot.pt",
                       "--json",        "--device=cuda", "--cuda_graphs=" + graphs,
                       "--prompt_file", "prompts.txt",   "--prompt_per_line"};
  auto command = on_gpus(place, 1, trainer(place, joined(words, options)));
  command.set.insert(faults.begin(), faults.end());
  forget_ledger(place);
  return succeed(command);
}

int replays_in(const nlohmann::json& ledger) {
  const auto& counters = ledger.at("counters");
  return counters.contains("graph_launch") ? counters.at("graph_launch").at("calls").get<int>() : 0;
}

/// Requires equal texts. Returns how many steps were replayed.
int check_same_text(const Workspace& place, const Words& options) {
  CAPTURE(options);
  const auto without = generated(place, options, "false");
  CHECK(replays_in(last_ledger(place)) == 0);
  CHECK_THAT(without.err, !Contains("CUDA graphs"));
  const auto with = generated(place, options, "true");
  CHECK(with.out == without.out);
  CHECK_THAT(with.err, Contains("launches of a token were replayed as one"));
  return replays_in(last_ledger(place));
}

/// What the tokens between two lengths of one text cost.
struct TokenCounts {
  int launches = 0;
  int replays = 0;
  int syncs = 0;
  int to_host = 0;
  int to_device = 0;
};

TokenCounts counts_of_token(const Workspace& place, Words options, const std::string& graphs) {
  constexpr int kShort = 10, kLong = 20;
  const auto ledger = [&](int tokens) {
    generated(place, joined(options, {"--max_new_tokens=" + std::to_string(tokens)}), graphs);
    return last_ledger(place);
  };
  const nlohmann::json few = ledger(kShort), many = ledger(kLong);
  CHECK(few.at("pageable") == many.at("pageable"));
  CHECK(few.at("alloc_calls") == many.at("alloc_calls"));
  const auto each = [](int more, int less) {
    CHECK((more - less) % (kLong - kShort) == 0);
    return (more - less) / (kLong - kShort);
  };
  const auto count = [&](const char* name) {
    return each(many.at(name).get<int>(), few.at(name).get<int>());
  };
  const auto calls = [&](const char* name) {
    return each(many.at(name).at("calls").get<int>(), few.at(name).at("calls").get<int>());
  };
  return {count("launches"), each(replays_in(many), replays_in(few)), count("host_syncs"),
          calls("d2h"), calls("h2d")};
}

}  // namespace

TEST_CASE("generation with a CUDA graph writes the text of single launches") {
  if (!gpus_are_faked()) return;
  const Workspace place;
  place.write("config.yaml", tiny_text_config(kChatLlama, "0.003"));
  succeed(alone(place, kLongContext));
  place.write("prompts.txt", "the brook\nan old oak, but\nA\n");
  CHECK(check_same_text(place, {"--top_k=20", "--repetition_penalty=1.2", "--temperature=0.8",
                                "--max_new_tokens=30"}) == 28);
}

// 256 positions are the least room of a cache on a GPU: one recording before, one after.
TEST_CASE("generation with CUDA graphs writes the text of single launches, of a GPT and a Llama",
          "[long]") {
  if (!gpus_are_faked()) return;
  for (const std::string& model : kChatModels) {
    const Workspace place;
    place.write("config.yaml", tiny_text_config(model, "0.003"));
    succeed(alone(place, kLongContext));
    place.write("prompts.txt", "the brook\nan old oak, but\nA\n");
    const Words filters = {"--top_k=20", "--top_p=0.9", "--min_p=0.01", "--repetition_penalty=1.2",
                           "--temperature=0.8"};
    CHECK(check_same_text(place, {"--greedy", "--max_new_tokens=30"}) == 28);
    CHECK(check_same_text(place, joined(filters, {"--max_new_tokens=30"})) == 28);
    place.write("prompts.txt", "the brook\n");
    // Positions 10 to 255, then 257 to 299, then the whole context for each token.
    CHECK(check_same_text(place, {"--max_new_tokens=310"}) == 246 + 43);
  }
}

TEST_CASE("a token of a graph is one launch, and the host waits once, for its number") {
  if (!gpus_are_faked()) return;
  const Workspace place;
  succeed(alone(place, {"trainer_config.max_steps=4"}));
  place.write("prompts.txt", "the brook\n");
  const auto greedy = counts_of_token(place, {"--greedy"}, "true");
  const auto drawn = counts_of_token(place, {"--top_k=5"}, "true");
  const auto single = counts_of_token(place, {"--greedy"}, "false");
  CAPTURE(single.launches);
  for (const auto& counts : {greedy, drawn}) {
    CHECK(counts.launches == 0);
    CHECK(counts.replays == 1);
  }
  for (const auto& counts : {greedy, drawn, single}) {
    CHECK(counts.syncs == 1);
    CHECK(counts.to_host == 1);
  }
  CHECK(greedy.to_device == 0);
  CHECK(drawn.to_device == 1);  // the random numbers
  CHECK(single.to_device == 0);
  CHECK(single.launches > 30);
  CHECK(single.replays == 0);
}

// Each operation of the device begins late: who does not wait for it reads old bytes.
TEST_CASE("on a slow device graphs write the same text") {
  if (!gpus_are_faked()) return;
  const Workspace place;
  succeed(alone(place, {"trainer_config.max_steps=4"}));
  place.write("prompts.txt", "the brook\nA\n");
  const Words options = {"--max_new_tokens=12", "--repetition_penalty=1.2"};
  const auto slow = generated(place, options, "true", {{"FAKECUDA_DELAY_US", "200"}});
  CHECK(slow.out == generated(place, options, "false").out);
}

namespace {

void check_turns(const Words& models) {
  for (const std::string& model : models) {
    const ChatPlace place(model);
    succeed(alone(place, {"trainer_config.max_steps=4"}));
    place.write("said.txt", "Hello\nWhat is that?\n/reset\nHello again\n");
    const auto answers = [&](const std::string& graphs) {
      const auto command = on_gpus(
          place, 1,
          trainer(place, {"generate", "--snapshot=snapshot.pt", "--chat", "--json",
                          "--max_new_tokens=12", "--device=cuda", "--cuda_graphs=" + graphs}));
      forget_ledger(place);
      return succeed(in_shell(R"(exec "$@" <said.txt)", command)).out;
    };
    const std::string without = answers("false");
    CHECK(lines_of(without).size() == 3);
    CHECK(answers("true") == without);
    CHECK(replays_in(last_ledger(place)) > 20);
  }
}

}  // namespace

TEST_CASE("turns of a conversation over one cache are those of single launches") {
  if (!gpus_are_faked()) return;
  check_turns({kChatLlama});
}

TEST_CASE("turns of a conversation over one cache are those of single launches, of each model",
          "[long]") {
  if (!gpus_are_faked()) return;
  check_turns(Words(kChatModels.begin(), kChatModels.end()));
}

TEST_CASE("a token that cannot be recorded is generated by single launches, with one line") {
  if (!gpus_are_faked()) return;
  const Workspace place;
  succeed(alone(place, {"trainer_config.max_steps=4"}));
  place.write("prompts.txt", "the brook\n");
  const auto without = generated(place, {"--max_new_tokens=20"}, "false");
  const auto failed =
      generated(place, {"--max_new_tokens=20"}, "true", {{"FAKECUDA_CAPTURE_FAILS", "1"}});
  CHECK(failed.out == without.out);
  CHECK_THAT(failed.err, Contains("CUDA graphs: not used; CUDA error: operation failed"));
}

}  // namespace ddp::test
