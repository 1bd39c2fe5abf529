// Runs a fuzz target over the files of a folder, without libFuzzer: corpus/ as an ordinary test.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
/// A target may define it. Changes the first bytes of an input into the n-th variant, instead of a
/// file for each. Returns false if there is no such variant.
extern "C" bool vary_input(char* data, int variant) __attribute__((weak));

int main(int argc, char** argv) {
  int inputs = 0;
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i])) {
      if (!entry.is_regular_file()) continue;
      std::ifstream file(entry.path(), std::ios::binary);
      std::string text{std::istreambuf_iterator<char>(file), {}};
      // For a crash: the last name printed is the culprit's.
      std::printf("%s\n", entry.path().filename().c_str());
      std::fflush(stdout);
      for (int n = 0; vary_input != nullptr ? vary_input(text.data(), n) : n == 0; ++n) {
        LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
        ++inputs;
      }
    }
  }
  std::printf("%d inputs\n", inputs);
  return inputs > 0 ? 0 : 1;
}
