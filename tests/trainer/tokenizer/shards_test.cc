#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/support/catch.h"
#include "tests/support/temp_folder.h"
#include "trainer/data/text/text_chunks.h"
#include "trainer/data/tokens/shard_format.h"
#include "trainer/data/tokens/shard_writer.h"
#include "trainer/data/tokens/token_shards.h"
#include "trainer/runtime/error.h"

namespace ddp::test {

using namespace ddp::train;

namespace {

const std::string kTokenizer(64, 'f');

std::vector<int32_t> counting(int32_t count, int32_t modulus) {
  std::vector<int32_t> tokens(static_cast<std::size_t>(count));
  for (int32_t i = 0; i < count; ++i) tokens[static_cast<std::size_t>(i)] = i % modulus;
  return tokens;
}

void write_shards(const std::string& folder, const std::vector<int32_t>& tokens, int64_t vocabulary,
                  int64_t per_shard) {
  ShardWriter writer({folder, per_shard, vocabulary, kTokenizer});
  const std::span<const int32_t> all(tokens);
  writer.write(all.first(all.size() / 3));
  writer.write(all.subspan(all.size() / 3));
  writer.finish();
}

std::vector<int64_t> read(const TokenSequence& sequence, int64_t first, int64_t count) {
  std::vector<int64_t> tokens(static_cast<std::size_t>(count));
  sequence.copy(first, tokens);
  return tokens;
}

template <typename Number>
std::string bytes_of(const std::vector<Number>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)};
}

std::string llmc_file(uint32_t magic, uint32_t version, uint32_t count, const std::string& tokens) {
  std::vector<uint32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  return bytes_of(header) + tokens;
}

std::string refusal_of(const std::string& path, const ShardUse& use = {257, kTokenizer}) {
  try {
    const TokenShards shards({path}, use);
    return "(no error)";
  } catch (const UserError& error) {
    return error.what();
  } catch (const RunError& error) {
    return error.what();
  }
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// By read() and its like, not through mappings.
int64_t bytes_read() {
  std::ifstream file("/proc/self/io");
  std::string name;
  int64_t bytes = -1;
  file >> name >> bytes;
  REQUIRE(name == "rchar:");
  return bytes;
}

int64_t resident_bytes() {
  int64_t all = 0;
  int64_t resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

}  // namespace

TEST_CASE("tokens come back from shards, over their borders") {
  const TempFolder folder;
  const int64_t vocabulary = GENERATE(257, 65536, 70000);
  const auto tokens = counting(10'000, static_cast<int32_t>(vocabulary));
  write_shards(folder.path(), tokens, vocabulary, 999);
  const TokenShards shards(find_shards(folder.path()), {vocabulary, kTokenizer});
  CHECK(shards.files() == 11);
  REQUIRE(shards.size() == 10'000);
  const std::vector<int64_t> wide(tokens.begin(), tokens.end());
  CHECK(read(shards, 0, 10'000) == wide);
  CHECK(read(shards, 990, 2'100) ==
        std::vector<int64_t>(wide.begin() + 990, wide.begin() + 990 + 2'100));
  CHECK(std::filesystem::file_size(folder / "tokens_000000.bin") ==
        kShardHeaderBytes + std::size_t{999} * (vocabulary > 65536 ? 4U : 2U));
}

TEST_CASE("the fingerprint is of the tokens and the tokenizer, not of the files") {
  const TempFolder one;
  const TempFolder other;
  auto tokens = counting(50'000, 250);
  write_shards(one.path(), tokens, 257, 1'000'000);
  write_shards(other.path(), tokens, 257, 7'000);
  const auto print_of = [](const TempFolder& folder, const std::string& tokenizer) {
    return TokenShards(find_shards(folder.path()), {257, tokenizer}).fingerprint();
  };
  CHECK(print_of(one, kTokenizer) == print_of(other, kTokenizer));
  CHECK(print_of(one, kTokenizer) != print_of(one, ""));
  const TempFolder longer;
  tokens.insert(tokens.begin(), 3);
  tokens.pop_back();
  write_shards(longer.path(), tokens, 257, 1'000'000);
  CHECK(print_of(one, kTokenizer) != print_of(longer, kTokenizer));
}

TEST_CASE("files of llm.c and of nanoGPT are read") {
  const TempFolder folder;
  const std::string narrow = bytes_of(std::vector<uint16_t>{5, 6, 50256});
  const std::string wide = bytes_of(std::vector<uint32_t>{5, 6, 128000});
  const std::string gpt2 = folder.write("gpt2.bin", llmc_file(20240520, 1, 3, narrow));
  const std::string llama = folder.write("llama.bin", llmc_file(20240801, 7, 3, wide));
  const std::string raw = folder.write("raw.bin", narrow);
  const TokenShards both({gpt2, raw}, {50257, kTokenizer});
  CHECK(read(both, 0, 6) == std::vector<int64_t>{5, 6, 50256, 5, 6, 50256});
  CHECK(read(TokenShards({llama}, {128256, ""}), 0, 3) == std::vector<int64_t>{5, 6, 128000});
}

TEST_CASE("a damaged file of tokens is refused in one line that says why") {
  using Catch::Contains;
  const TempFolder folder;
  write_shards(folder.path(), counting(1000, 250), 257, 5000);
  const std::string whole = contents(folder / "tokens_000000.bin");
  const auto with = [&whole](std::size_t at, const std::string& bytes) {
    return std::string(whole).replace(at, bytes.size(), bytes);
  };
  const auto refused = [&folder](const std::string& bytes) {
    return refusal_of(folder.write("x.bin", bytes));
  };
  CHECK_THAT(
      refused(whole.substr(0, 1000)),
      Contains("is cut short: its header has 1000 tokens, that is 2128 bytes, but the file has "
               "1000"));
  CHECK_THAT(refused(whole.substr(0, 60)), Contains("truncated within its header"));
  CHECK_THAT(refused(whole + "xx"), Contains("is too long"));
  CHECK_THAT(refused(with(24, std::string(8, '\xff'))), Contains("is cut short"));
  CHECK_THAT(refused(with(8, std::string("\1\2\3\4", 4))), Contains("another byte order"));
  CHECK_THAT(refused(with(8, "abcd")), Contains("damaged header"));
  CHECK_THAT(refused(with(12, "\2")), Contains("has version 2, this trainer reads version 1"));
  CHECK_THAT(refused(with(16, "\3")), Contains("damaged header"));
  CHECK_THAT(refused(""), Contains("is empty"));
  CHECK_THAT(refused("abc"), Contains("3 bytes are not a whole number of 16-bit tokens"));
  CHECK_THAT(refused(llmc_file(20240520, 1, 3, "ab")), Contains("is cut short"));
  CHECK_THAT(refused(llmc_file(20240520, 1, 1, "ab").substr(0, 90)), Contains("within its header"));
  CHECK_THAT(refused(llmc_file(20240520, 2, 1, "ab")), Contains("has version 2"));
  CHECK_THAT(refused(llmc_file(__builtin_bswap32(20240520), 1, 1, "ab")),
             Contains("another byte order"));
  CHECK_THAT(refusal_of(folder.path()), Contains("is not a file of tokens"));
  CHECK_THAT(refusal_of(folder / "none.bin"), Contains("cannot read"));
}

TEST_CASE("a file that is cut while it is read is an error, one that is replaced is read on") {
  const TempFolder folder;
  write_shards(folder.path(), counting(20'000, 250), 257, 20'000);
  const std::string path = folder / "tokens_000000.bin";
  const TokenShards shards({path}, {257, kTokenizer});
  std::filesystem::rename(path, path + ".old");
  std::ofstream(path) << "another";
  CHECK(read(shards, 19'998, 2) == std::vector<int64_t>{248, 249});
  std::filesystem::rename(path + ".old", path);
  std::filesystem::resize_file(path, 4096);
  CHECK_THROWS_WITH(read(shards, 19'998, 2),
                    Catch::Contains("was truncated from 40128 to 4096 bytes while being read"));
}

TEST_CASE("a vocabulary that does not fit the shards is refused") {
  using Catch::Contains;
  const TempFolder folder;
  write_shards(folder.path(), counting(1000, 250), 257, 5000);
  const std::string path = folder / "tokens_000000.bin";
  CHECK_THAT(refusal_of(path, {100, kTokenizer}),
             Contains("its vocabulary has 257 tokens, the tokenizer 100"));
  CHECK_THAT(refusal_of(path, {300, std::string(64, 'a')}), Contains("another tokenizer"));
  const std::string raw = folder.write("raw.bin", bytes_of(std::vector<uint16_t>{1, 2, 300, 4}));
  CHECK_THAT(refusal_of(raw, {300, ""}),
             Contains("token 300 at position 2 is not in the vocabulary"));
}

TEST_CASE("a path is a file, a glob or a folder") {
  const TempFolder folder;
  const std::string a = folder.write("a.bin", "ab");
  const std::string b = folder.write("b.bin", "ab");
  folder.write("notes.txt", "ab");
  CHECK(find_shards(a) == std::vector<std::string>{a});
  CHECK(find_shards(folder / "*.bin") == std::vector<std::string>{a, b});
  CHECK(find_shards(folder.path()) == std::vector<std::string>{a, b});
  CHECK_THROWS_WITH(find_shards(folder / "c*.bin"),
                    Catch::Contains("no such file, folder or glob"));
  folder.write("train.bin", "ab");
  folder.write("val.bin", "ab");
  CHECK_THROWS_WITH(find_shards(folder.path()), Catch::Contains("data_config.eval_path="));
}

TEST_CASE(
    "opening a folder of tokens reads little of it, and reading windows takes little memory") {
  const TempFolder folder;
  constexpr int64_t kTokens = 512'000'000;  // 1 GB, of holes: the disk is not asked for it
  ShardLayout layout = {kShardHeaderBytes, 2, kTokens, 257, kTokenizer};
  folder.write("tokens_000000.bin", shard_header(layout));
  std::filesystem::resize_file(folder / "tokens_000000.bin", kShardHeaderBytes + 2 * kTokens);
  const int64_t before = resident_bytes();
  const int64_t read_before = bytes_read();
  const TokenShards shards(find_shards(folder.path()), {257, kTokenizer});
  CHECK(bytes_read() - read_before < 1'000'000);
  CHECK(resident_bytes() - before < 50'000'000);
  std::vector<int64_t> window(1025);
  int64_t most = 0;
  uint64_t random = 1;
  for (int i = 0; i < 4000; ++i) {
    random = random * 6364136223846793005ULL + 1442695040888963407ULL;
    shards.copy(static_cast<int64_t>((random >> 33U) % (kTokens - 1025)), window);
    most = std::max(most, resident_bytes() - before);
  }
  CHECK(most < 50'000'000);
}

TEST_CASE("an unfinished shard leaves nothing behind") {
  const TempFolder folder;
  {
    ShardWriter writer({folder.path(), 100, 257, kTokenizer});
    writer.write(counting(150, 250));
  }
  CHECK(find_shards(folder.path()) == std::vector<std::string>{folder / "tokens_000000.bin"});
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("a text comes in pieces that together are the text") {
  const TempFolder folder;
  std::string text;
  text.resize(9'500'000, 'a');
  for (std::size_t at = 2'500'000; at < text.size(); at += 7) text[at] = ' ';  // none before
  const auto last_space = [](std::string_view part) {
    const auto at = part.rfind(' ');
    return at == std::string_view::npos ? 0 : at;
  };
  TextChunks chunks(folder.write("a.txt", text), last_space);
  std::string joined;
  int pieces = 0;
  for (TextChunks::Chunk chunk; chunks.next(chunk); ++pieces) {
    CHECK(chunk.offset == joined.size());
    joined += chunk.text;
  }
  CHECK(joined == text);
  CHECK(pieces >= 2);
}

}  // namespace ddp::test
