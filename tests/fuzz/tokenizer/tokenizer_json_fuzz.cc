// Any bytes are a tokenizer that gives back every text that it encodes, or one line of complaint.
#include <cstdint>
#include <string>

#include "tests/fuzz/check.h"
#include "trainer/runtime/error.h"
#include "trainer/tokenizer/tokenizer_folder.h"

using namespace ddp::train;

namespace {

void check_complaint(const std::string& text) {
  constexpr std::size_t kReadable = 1000;
  FUZZ_CHECK(!text.empty());
  FUZZ_CHECK(text.size() < kReadable);
  FUZZ_CHECK(text.find('\n') == std::string::npos);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  try {
    const auto tokenizer = parse_tokenizer(bytes, "fuzz");
    const auto again = tokenizer_from_state(tokenizer->state());
    for (const std::string& text : {std::string("ab ab  a\xff<|endoftext|>"), bytes}) {
      const auto tokens = tokenizer->encode(text);
      for (const int32_t token : tokens) FUZZ_CHECK(token >= 0 && token < tokenizer->size());
      FUZZ_CHECK(again->encode(text) == tokens);
    }
  } catch (const UserError& error) {
    check_complaint(error.what());
  }
  return 0;
}
