// The tokenizers on a command line, for the tests against Python's:
//   encode TOKENIZER            standard input -> token ids, int32 each
//   decode TOKENIZER            token ids -> bytes
//   encode_in_parts TOKENIZER   the same, of parts that end where safe_prefix() says
//   beginning TOKENIZER         -> Tokenizer::beginning(), int32 each
//   state TOKENIZER             -> tokenizer.json
//   words                       text -> the number of bytes of each word, int32 each
//   train VOCAB_SIZE            text -> tokenizer.json
//   train_wordpiece VOCAB_SIZE  text -> tokenizer.json
//   bench TOKENIZER REPEATS     text -> "TOKENS SECONDS", the fastest of the repeats
//   bench_lines ...             the same, line by line
#include <algorithm>
#include <chrono>
#include <cstring>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "trainer/tokenizer/bpe/bpe_tokenizer.h"
#include "trainer/tokenizer/bpe/bpe_trainer.h"
#include "trainer/tokenizer/tokenizer_folder.h"
#include "trainer/tokenizer/word_splitter.h"
#include "trainer/tokenizer/wordpiece/wordpiece_tokenizer.h"
#include "trainer/tokenizer/wordpiece/wordpiece_trainer.h"

namespace {

using namespace ddp::train;

void print_numbers(const std::vector<int32_t>& numbers) {
  std::cout.write(reinterpret_cast<const char*>(numbers.data()),
                  static_cast<std::streamsize>(numbers.size() * sizeof(int32_t)));
}

void words(const std::string& text) {
  std::vector<int32_t> sizes;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = word_end(text, at);
    sizes.push_back(static_cast<int32_t>(end - at));
    at = end;
  }
  print_numbers(sizes);
}

void encode_in_parts(const std::string& path, std::string_view text) {
  constexpr std::size_t kPart = 997;
  const auto tokenizer = load_tokenizer(path);
  std::vector<int32_t> tokens;
  while (!text.empty()) {
    const std::size_t cut =
        text.size() <= kPart ? text.size() : tokenizer->safe_prefix(text.substr(0, kPart));
    const auto part = tokenizer->encode(text.substr(0, cut == 0 ? text.size() : cut));
    tokens.insert(tokens.end(), part.begin(), part.end());
    text.remove_prefix(cut == 0 ? text.size() : cut);
  }
  print_numbers(tokens);
}

void decode(const std::string& path, const std::string& bytes) {
  std::vector<int32_t> tokens(bytes.size() / sizeof(int32_t));
  std::memcpy(tokens.data(), bytes.data(), tokens.size() * sizeof(int32_t));
  std::cout << load_tokenizer(path)->decode(tokens);
}

void train(const std::string& size, const std::string& text) {
  WordCounts words;
  words.add_text(text);
  std::cout << BpeTokenizer(train_bpe(words, std::stoll(size))).state();
}

void train_wordpieces(const std::string& size, const std::string& text) {
  WordCounts words;
  for_each_bert_word(text, BertWordOptions{}, [&](std::string_view word) { words.add_word(word); });
  std::cout << WordpieceTokenizer(train_wordpiece(words, std::stoll(size))).state();
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return lines;
}

void bench(const std::string& path, int repeats, const std::vector<std::string_view>& texts) {
  const auto tokenizer = load_tokenizer(path);
  std::size_t tokens = 0;
  double best = 1e9;
  for (int i = 0; i < repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    tokens = 0;
    for (const std::string_view text : texts) tokens += tokenizer->encode(text).size();
    best = std::min(
        best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::cout << tokens << " " << best << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  try {
    const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
    if (args.at(0) == "encode") print_numbers(load_tokenizer(args.at(1))->encode(text));
    if (args.at(0) == "words") words(text);
    if (args.at(0) == "decode") decode(args.at(1), text);
    if (args.at(0) == "train") train(args.at(1), text);
    if (args.at(0) == "train_wordpiece") train_wordpieces(args.at(1), text);
    if (args.at(0) == "bench") bench(args.at(1), std::stoi(args.at(2)), {text});
    if (args.at(0) == "bench_lines") bench(args.at(1), std::stoi(args.at(2)), lines_of(text));
    if (args.at(0) == "encode_in_parts") encode_in_parts(args.at(1), text);
    if (args.at(0) == "beginning") print_numbers(load_tokenizer(args.at(1))->beginning());
    if (args.at(0) == "state") std::cout << load_tokenizer(args.at(1))->state();
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
