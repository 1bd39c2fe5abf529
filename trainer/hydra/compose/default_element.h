// One item of a defaults list, and the derivation of its names: Hydra's rules for group, package
// and override key.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainer/hydra/yaml/tree.h"

namespace ddp::train {

enum class DefaultKind { kConfig, kGroup };

/// The choice from a group: an option, several, or none (null).
struct GroupOption {
  std::optional<std::string> name;
  std::optional<std::vector<std::string>> several;

  /// Throws UserError if `value` does not specify an option.
  static GroupOption of(const Node& value);
  /// Returns it in the syntax of overrides.
  std::string str() const;
};

/// `- base`, `- group: option`, `- optional group@package: [a, b]`, `- override group: option`,
/// `- _self_`. Set its place in the tree (parent_*) before asking for names.
struct DefaultElement {
  DefaultKind kind = DefaultKind::kConfig;
  std::string path;    ///< The config's path, or the group as written.
  GroupOption option;  ///< kGroup
  std::optional<std::string> package;
  std::optional<std::string> package_header;  ///< `# @package` of the file, made absolute.
  std::string parent_base_dir;
  std::string parent_package;
  Place place;
  bool primary = false;
  bool optional = false;
  bool override = false;
  bool external = false;  ///< Appended on the command line.
  bool deleted = false;

  static DefaultElement self();
  static DefaultElement config(std::string path);

  bool is_self() const;
  bool is_missing() const;
  bool is_interpolation() const;
  void set_parent(const std::string& base_dir, const std::string& package_of_parent);
  void set_package_header(const std::optional<std::string>& header);

  /// The last part of the config's path, or the option; none for `group: null`.
  std::optional<std::string> name() const;
  std::string group_path() const;   ///< "db/engine"
  std::string config_path() const;  ///< "db/engine/innodb"
  /// The package of its content: "db.engine", "" for the top.
  std::string final_package(bool use_header = true) const;
  /// Its name in overrides: "db", or "db@other" if the package is not the default.
  std::string override_key() const;
};

/// The items of a file's `defaults`. Throws UserError with the place of a faulty one.
std::vector<DefaultElement> parse_defaults(const Node& list);

}  // namespace ddp::train
