// Finds configuration files: in the primary one's folder, further folders, and Hydra's built-in
// settings.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/hydra/compose/default_element.h"
#include "trainer/hydra/yaml/tree.h"

namespace ddp::train {

/// The file that a run starts from.
struct ConfigSource {
  std::string folder;                ///< The folder of groups and other files; empty: none.
  std::string name;                  ///< "gpt2", without .yaml
  std::string file;                  ///< Its name in messages.
  std::vector<std::string> further;  ///< `--config-dir`
  /// Accepts any keys, unchecked, as Hydra does without a structured configuration; for the
  /// conformance test.
  bool any_keys = false;

  /// `--config FILE`
  static ConfigSource of_file(const std::string& file);
  /// `--config-path FOLDER --config-name NAME`
  static ConfigSource of_name(const std::string& folder, const std::string& name);
};

struct LoadedConfig {
  Node content;  ///< Without `defaults`.
  std::vector<DefaultElement> defaults;
  std::optional<std::string> package;  ///< `# @package a.b`
  std::string file;
};

/// Throws UserError: the content of `file` is not a map.
[[noreturn]] void fail_no_map(const std::string& file);

/// Reads each file once. "db/mysql" is the file db/mysql.yaml of the first folder that has it.
class ConfigRepository {
 public:
  explicit ConfigRepository(ConfigSource source);

  /// Returns nullptr if there is none. Throws UserError if a file cannot be read.
  const LoadedConfig* load(const std::string& path);
  bool has_group(const std::string& path) const;
  /// Returns the names in a group, sorted.
  std::vector<std::string> options(const std::string& group) const;
  void add_folder(const std::string& folder) { folders_.push_back(folder); }
  const std::vector<std::string>& folders() const { return folders_; }
  const ConfigSource& source() const { return source_; }

 private:
  std::string file_of(const std::string& path) const;

  ConfigSource source_;
  std::vector<std::string> folders_;
  std::map<std::string, std::unique_ptr<LoadedConfig>> loaded_;
};

}  // namespace ddp::train
