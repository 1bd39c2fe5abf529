// Configurations loaded from text.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/trainer/config/test_files.h"
#include "trainer/app/load_run.h"
#include "trainer/runtime/error.h"

namespace ddp::train::test {

using Overrides = std::vector<std::string>;

/// The configuration of the DDP tutorial's minGPT example.
inline constexpr const char* kExample = R"(data_config:
  path: ./data/input.txt
  block_size: 128   # input length
  train_split: 0.9
  truncate: 0.02
gpt_config:
  n_layer: 8
  n_head: 8
  n_embd: 512
trainer_config:
  max_epochs: 10
  batch_size: 216
  data_loader_workers: 4
  grad_norm_clip: 1.0
  snapshot_path: gpt_snapshot.pt
  save_every: 3
  use_amp: True
optimizer_config:
  weight_decay: 0.1
  learning_rate: 0.0003

hydra:
  run:
    dir: ./
)";

/// A folder with data/input.txt, where configurations are loaded from text.
class Loading {
 public:
  Loading() {
    std::filesystem::create_directory("data");
    write_file("data/input.txt", "First Citizen:\n");
  }
  Config load(const std::string& yaml, const Overrides& overrides = {}) const {
    write_file("cfg.yaml", yaml);
    return load_config(ConfigSource::of_file("cfg.yaml"), overrides);
  }
  /// On top of a minimal configuration.
  Config with(const Overrides& overrides) const {
    return load("data_config: {path: data/input.txt}", overrides);
  }
  std::string error(const std::string& yaml, const Overrides& overrides = {}) const {
    return error_of<UserError>([&] { load(yaml, overrides); });
  }
  std::string error_with(const Overrides& overrides) const {
    return error_of<UserError>([&] { with(overrides); });
  }
  std::string folder() const { return folder_.str(); }

 private:
  TestFolder folder_;
};

}  // namespace ddp::train::test
