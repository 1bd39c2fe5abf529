// Small models and texts for the tests of trainer.
#pragma once

#include <torch/torch.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "trainer/config/model_config.h"
#include "trainer/model/gpt/gpt.h"

namespace ddp::train::test {

inline GptConfig tiny_config(int64_t n_layer = 2, int64_t n_head = 2, int64_t n_embd = 32) {
  GptConfig config;
  config.n_layer = n_layer;
  config.n_head = n_head;
  config.n_embd = n_embd;
  return config;
}

inline torch::Tensor random_tokens(int64_t batch, int64_t length, int64_t vocab_size,
                                   uint64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return torch::randint(0, vocab_size, {batch, length}, generator, torch::kInt64);
}

/// A folder of its own, removed at the end.
class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "ddp_trainer_XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(file(name), std::ios::binary) << text;
    return file(name);
  }

 private:
  std::string path_;
};

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace ddp::train::test
