// Checks across keys, and values derived from others.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "trainer/hydra/yaml/tree.h"

namespace ddp::train {

struct Config;

/// The values of the file and of the command line, by key, with their places.
class Given {
 public:
  Given(std::map<std::string, Node> values, std::string file)
      : values_(std::move(values)), file_(std::move(file)) {}

  const std::map<std::string, Node>& values() const { return values_; }
  /// Given, and not as null.
  bool has(const std::string& key) const;
  /// Throws UserError: the key's place, or the file, then the key and the text.
  [[noreturn]] void refuse(const std::string& key, const std::string& what) const;

 private:
  std::map<std::string, Node> values_;
  std::string file_;
};

/// Runs checks across keys; epochs are unlimited if only steps are given. Throws
/// UserError.
void complete_config(Config& config, const Given& given);

/// Checks that the ways to divide a training are compatible; complete_config() includes it. Throws
/// UserError.
void check_parallelism(const Config& config, const Given& given);

}  // namespace ddp::train
