// The tokenizers on a command line, for the tests beside Python's:
//   encode TOKENIZER            standard input -> token ids, int32 each
//   decode TOKENIZER            token ids -> bytes
//   words                       text -> the number of bytes of each word, int32 each
//   train VOCAB_SIZE            text -> tokenizer.json
//   train_wordpiece VOCAB_SIZE  text -> tokenizer.json
//   bench TOKENIZER REPEATS     text -> "TOKENS SECONDS", the fastest of the repeats
#include <algorithm>
#include <chrono>
#include <cstring>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "trainer/tokenizer/bpe_tokenizer.h"
#include "trainer/tokenizer/bpe_trainer.h"
#include "trainer/tokenizer/tokenizer_folder.h"
#include "trainer/tokenizer/word_splitter.h"
#include "trainer/tokenizer/wordpiece_tokenizer.h"
#include "trainer/tokenizer/wordpiece_trainer.h"

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

void bench(const std::string& path, int repeats, const std::string& text) {
  const auto tokenizer = load_tokenizer(path);
  std::size_t tokens = 0;
  double best = 1e9;
  for (int i = 0; i < repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    tokens = tokenizer->encode(text).size();
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
    if (args.at(0) == "bench") bench(args.at(1), std::stoi(args.at(2)), text);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
