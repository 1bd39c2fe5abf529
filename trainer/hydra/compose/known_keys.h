// The keys that a configuration may have, and errors for unknown ones.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trainer/hydra/yaml/tree.h"

namespace ddp::train {

enum class PathKind { kKey, kSection, kUnknown };

/// The keys of a program, and those of the block `hydra`.
class KnownKeys {
 public:
  /// `paths`: "trainer_config.seed", ...; those that begin with "hydra." are the ones of that block
  /// that the program reads.
  /// `elsewhere`: names from other programs, and their replacements.
  explicit KnownKeys(const std::vector<std::string>& paths,
                     std::map<std::string, std::string> elsewhere = {});

  /// "trainer_config.seed" is a key, "trainer_config" and "hydra.run" are sections.
  PathKind kind_of(const std::string& path) const;

  /// Throws UserError for an unknown key, unless `any_keys`, and for a value in place of a section.
  /// `parent` is the map's own path. Leaves out the block `hydra`.
  void check(const Node& map, const std::string& parent, bool any_keys = false) const;

  /// The same for the block `hydra` alone.
  void check_hydra(const Node& root, bool any_keys) const;

  [[noreturn]] void fail_unknown(const Place& place, const std::string& parent,
                                 const std::string& name) const;

  /// Throws UserError that lists the keys that are ???. Within the block `hydra` only the keys that
  /// the program reads count.
  void refuse_missing(const Node& root, const std::string& file) const;

 private:
  struct Missing;

  std::vector<std::string> children_of(const std::string& section) const;
  std::string suggestion(const std::string& parent, const std::string& name) const;
  void collect_missing(const Node& node, const std::string& path, Missing& missing) const;
  [[noreturn]] void fail_section(const Node& value, const std::string& path) const;
  void check_section(const Node& value, const std::string& path, bool any_keys) const;

  std::vector<std::string> paths_;
  std::map<std::string, std::string> elsewhere_;
  Node tree_ = Node::map();  // a map for each section, null for each key
};

}  // namespace ddp::train
