// Training on files of tokens: `trainer tokenize`, then `data_config.path` of its folder.
#include <cstdint>
#include <filesystem>

#include "tests/support/catch.h"

#include "tests/e2e/saved_state.h"
#include "tests/e2e/workers.h"

namespace ddp::test {
namespace {

using Catch::Contains;
using namespace std::string_literals;

void tokenize(const Workspace& place, const Words& options) {
  Words arguments = {"tokenize"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  succeed(trainer(place, arguments));
}

void tokenize_bpe(const Workspace& place) {
  tokenize(place, {"--tokenizer", "bpe", "--train", "--vocab_size", "300", "--input", "text.txt",
                   "--output", "bpe", "--shard_tokens", "700"});
}

const Words kOnBpe = {"data_config.path=bpe", "data_config.stride=1",
                      "trainer_config.max_steps=12"};

/// kOnBpe and one more.
Words on_bpe(const std::string& further) {
  Words words = kOnBpe;
  words.push_back(further);
  return words;
}

void check_refused(const Workspace& place, const Words& overrides, const std::string& said) {
  const Finished run = finish(alone(place, overrides));
  INFO(run.err);
  CHECK(run.exit == 2);
  REQUIRE(lines_of(run.err).size() == 1);
  CHECK_THAT(run.err, Contains(said));
}

TEST_CASE("a text and its tokens in files train to the same numbers") {
  const Workspace text;
  const Workspace tokens;
  succeed(alone(text, {"trainer_config.max_steps=12"}));
  tokenize(tokens, {"--tokenizer", "char", "--input", "text.txt", "--output", "chars",
                    "--shard_tokens", "1000"});
  succeed(alone(tokens, {"trainer_config.max_steps=12", "data_config.path=chars"}));
  CHECK(largest_parameter_distance(text.snapshot(), tokens.snapshot()) == 0.0);
}

TEST_CASE("a run on BPE tokens goes on bit for bit, and generates from its own vocabulary") {
  const Workspace unbroken;
  const Workspace resumed;
  tokenize_bpe(unbroken);
  tokenize_bpe(resumed);
  const auto run = succeed(alone(unbroken, kOnBpe));
  CHECK_THAT(run.out, Contains(" tokens, 300 unique; ") && Contains("Documents: packed; token 0"));
  succeed(alone(resumed, on_bpe("trainer_config.max_steps=5")));
  succeed(alone(resumed, kOnBpe));
  CHECK(differences(unbroken.snapshot(), resumed.snapshot()) == Words{});
  const auto text = succeed(trainer(unbroken, {"generate", "--snapshot", "snapshot.pt", "--prompt",
                                               "the ", "--max_new_tokens", "5", "--seed", "1"}));
  CHECK_THAT(text.out, Catch::StartsWith("the "));
}

/// The number's bytes, lowest first.
std::string four_bytes(std::uint32_t number) {
  std::string bytes;
  for (unsigned shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(number >> shift);
  return bytes;
}

/// llm.c's file of the same tokens as one of trainer's with 16 bits each.
std::string as_llama3_file(const std::string& shard) {
  constexpr std::size_t kHeader = 128, kWords = 256;
  const auto tokens = static_cast<std::uint32_t>((shard.size() - kHeader) / 2);
  std::string file = four_bytes(20240801) + four_bytes(7) + four_bytes(tokens);
  file.resize(4 * kWords);
  for (std::size_t at = kHeader; at < shard.size(); at += 2) file += shard.substr(at, 2) + "\0\0"s;
  return file;
}

TEST_CASE("Llama 3's token files train with its tokenizer.json, and a prompt is encoded by it") {
  const Workspace place;
  tokenize(place, {"--tokenizer", "bpe", "--train", "--vocab_size", "300", "--input", "text.txt",
                   "--output", "bpe"});
  std::string tokenizer = read_bytes(place / "bpe/tokenizer.json");
  const std::string gpt2 = R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,)"
                           R"("trim_offsets":true,"use_regex":true})";
  const std::string llama3 =
      R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":)"
      R"({"Regex":"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*)"
      R"(|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},"behavior":"Isolated","invert":false},{"type":"ByteLevel",)"
      R"("add_prefix_space":false,"trim_offsets":true,"use_regex":false}]})";
  REQUIRE(tokenizer.find(gpt2) != std::string::npos);
  tokenizer.replace(tokenizer.find(gpt2), gpt2.size(), llama3);
  std::filesystem::create_directory(place / "llama");
  place.write("llama/tokenizer.json", tokenizer);
  place.write("llama/train.bin", as_llama3_file(read_bytes(place / "bpe/tokens_000000.bin")));

  const Words on = {"data_config.path=llama", "trainer_config.max_steps=4"};
  succeed(
      alone(place, {on[0], "trainer_config.max_steps=2", "trainer_config.sample_every_steps=2"}));
  succeed(alone(place, on));
  const Workspace unbroken;
  std::filesystem::copy(place / "llama", unbroken / "llama");
  succeed(alone(unbroken, on));
  CHECK(differences(unbroken.snapshot(), place.snapshot()) == Words{});

  const auto prompted = succeed(trainer(place, {"generate", "--snapshot", "snapshot.pt", "--prompt",
                                                "the", "--max_new_tokens", "2"}));
  CHECK_THAT(prompted.out, Catch::StartsWith("the"));

  const std::string known = read_bytes(unbroken / "llama/tokenizer.json");
  std::string other = known;
  other.replace(other.find("{1,3}"), 5, "{1,2}");
  unbroken.write("llama/tokenizer.json", other);
  check_refused(unbroken, {"data_config.path=llama", "trainer_config.snapshot_path=new.pt"},
                "this trainer reads the patterns of GPT-2, Llama 3 and Qwen 2 and 3");
}

TEST_CASE("a run on BPE tokens is not resumed with the tokenizer char") {
  const Workspace place;
  tokenize_bpe(place);
  const Words on_text = {"data_config.tokenizer=./bpe", "trainer_config.max_steps=2"};
  succeed(alone(place, on_text));
  check_refused(place, {"data_config.tokenizer=char", "trainer_config.max_steps=4"},
                "was trained with another vocabulary: its tokenizer is bpe with 300 tokens, that "
                "of this configuration is char with ");
  succeed(alone(place, {"trainer_config.max_steps=4"}));
}

TEST_CASE("samples of an epoch that do not fill a step are counted in the log") {
  const Workspace place;
  const auto run = succeed(alone(place, {"trainer_config.max_steps=1"}));
  CHECK_THAT(run.out, Contains("Epochs: 2 of 138 samples do not fill a step and are left out"));
}

TEST_CASE("several texts by a glob, other bytes than UTF-8, and a text for evaluation alone") {
  const Workspace place;
  std::filesystem::create_directory(place / "texts");
  place.write("texts/a.txt", std::string(300, 'a') + "\xff");
  place.write("texts/b.txt", std::string(300, 'b'));
  place.write("valid.txt", "abcabcabcabc");
  const auto run =
      succeed(alone(place, {"trainer_config.max_steps=3", "data_config.path='texts/*.txt'",
                            "data_config.tokenizer=byte", "data_config.eval_path=valid.txt"}));
  CHECK_THAT(run.out, Contains("601 tokens of ") && Contains(", 257 unique; ") &&
                          Contains(", 11 evaluation tokens of "));
}

}  // namespace
}  // namespace ddp::test
