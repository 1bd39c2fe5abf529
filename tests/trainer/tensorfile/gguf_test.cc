// GGUF files next to those of llama.cpp's package gguf: gguf_types.py.
#include "tests/support/catch.h"

#include "tests/trainer/config/test_files.h"
#include "trainer/runtime/error.h"
#include "trainer/tensorfile/gguf.h"

namespace ddp::train {
namespace {

/// As in the script: beyond the sign and size of weights, halves of steps, scales that are small,
/// subnormal, 0 and the largest in float16.
std::vector<float> gguf_numbers(std::size_t count) {
  std::vector<float> numbers;
  for (std::size_t i = 0; i < count; ++i)
    numbers.push_back(static_cast<float>((static_cast<double>(i * 7919 % 2003) - 1001) * 0.0131));
  return numbers;
}

std::vector<float> gguf_blocks() {
  std::vector<float> numbers = gguf_numbers(96);
  for (const double factor : {0.0, 1e-4, 1e-6, 1e-44, 65504.0}) {
    for (int i = 0; i < 32; ++i)
      numbers.push_back(static_cast<float>(factor * (i == 0 ? 127.0 : i - 15.5)));
  }
  return numbers;
}

template <class Number>
GgufTensor tensor_of(const std::string& name, std::vector<int64_t> shape, GgufType type,
                     const std::vector<Number>& numbers) {
  return {name, std::move(shape), type, [numbers](const GgufSink& sink) {
            for (const Number& number : numbers) sink(&number, sizeof number);
          }};
}

}  // namespace

TEST_CASE("a GGUF file is that of llama.cpp's package, byte for byte") {
  const test::TestFolder dir;
  const auto blocks = gguf_blocks();
  const std::vector<uint16_t> half = {0xca8e, 0x49f4, 0x4958, 0x48bc, 0x4820, 0x4709};
  const std::vector<uint16_t> brain = {0xc152, 0x413f, 0x412b, 0x4118, 0x4104, 0x40e1};
  const GgufMetadata metadata = {
      {"general.architecture", std::string("llama")},
      {"a.count", uint32_t{4'000'000'000}},
      {"a.real", 0.1F},
      {"a.yes", true},
      {"a.no", false},
      {"a.texts", std::vector<std::string>{"one", "", "d\u00e9j\u00e0 vu\n"}},
      {"a.reals", std::vector<float>{-1.5F, 1e-30F}},
      {"a.numbers", std::vector<int32_t>{-7, 2'000'000'000}}};
  write_gguf("types.gguf", metadata,
             {{"blocks",
               {4, 64},
               GgufType::kQ8_0,
               [&blocks](const GgufSink& sink) { write_q8_0(blocks, sink); }},
              tensor_of("single", {3}, GgufType::kF32, gguf_numbers(3)),
              tensor_of("half", {2, 3}, GgufType::kF16, half),
              tensor_of("brain", {3, 2, 1}, GgufType::kBF16, brain)});
  const std::string golden = DDP_TEST_DIR "/types.gguf";
  CHECK(test::read_file("types.gguf") == test::read_file(golden));
}

TEST_CASE("a tensor that does not fill its shape leaves no GGUF file") {
  const test::TestFolder dir;
  const auto refused = [](std::vector<int64_t> shape, GgufType type) {
    const auto tensor = tensor_of("w", std::move(shape), type, gguf_numbers(6));
    return test::error_of<RunError>([&] { write_gguf("wrong.gguf", {}, {tensor}); });
  };
  CHECK(refused({7}, GgufType::kF32) == "w: has 24 of the 28 bytes of its shape");
  CHECK(refused({5}, GgufType::kF32) == "w: has more than the 20 bytes of its shape");
  const std::string no_size = "w: its shape has no size in a GGUF file";
  CHECK(refused({-1}, GgufType::kF32) == no_size);
  CHECK(refused({-32}, GgufType::kQ8_0) == no_size);
  CHECK(refused({int64_t{1} << 62, 32}, GgufType::kQ8_0) == no_size);
  CHECK(refused({2, 33}, GgufType::kQ8_0) == no_size);
  CHECK(refused({}, GgufType::kQ8_0) == no_size);
  CHECK(std::filesystem::is_empty(dir.str()));
}

}  // namespace ddp::train
