#include "trainer/config/yaml_config.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <map>

#include "trainer/config/compose.h"
#include "trainer/config/config_checks.h"
#include "trainer/config/config_fields.h"
#include "trainer/config/interpolation.h"
#include "trainer/config/message.h"
#include "trainer/config/overrides.h"
#include "trainer/config/schema.h"
#include "trainer/config/yaml_reader.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

std::string read_text(const std::string& file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  std::string text;
  std::array<char, 16384> buffer{};
  ssize_t n = fd < 0 ? -1 : 1;
  while (n > 0) {
    n = ::read(fd, buffer.data(), buffer.size());
    if (n > 0) text.append(buffer.data(), static_cast<std::size_t>(n));
    if (n < 0 && errno == EINTR) n = 1;
  }
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (n < 0) {
    throw UserError(
        fmt::format("{}: cannot read the config file: {}; give a YAML file with --config", file,
                    std::strerror(error)));
  }
  return text;
}

/// Every leaf of the tree by its full path.
void collect_leaves(const Node& map, const std::string& parent,
                    std::map<std::string, const Node*>& leaves) {
  for (const Entry& entry : map.entries) {
    const std::string path = (parent.empty() ? "" : parent + ".") + python_str(entry.key);
    if (path_kind(path) == PathKind::kSection) {
      collect_leaves(entry.value, path, leaves);
    } else {
      leaves[path] = &entry.value;
    }
  }
}

using Leaves = std::map<std::string, const Node*>;

void check_missing(const Leaves& leaves, const std::string& file) {
  std::vector<std::string> missing;
  std::string where = file;
  for (const auto& [path, node] : leaves) {
    if (!node->is_missing()) continue;
    if (missing.empty()) where = node->place.str();
    missing.push_back(path);
  }
  if (!leaves.contains("data_config.path")) missing.emplace_back("data_config.path");
  if (missing.empty()) return;
  std::string names;
  for (const std::string& name : missing) names += (names.empty() ? "" : ", ") + name;
  throw UserError(fmt::format(
      "{}: {}: Missing mandatory value{}; add {}=<value> to the command line or to the file", where,
      names, missing.size() == 1 ? "" : "s", missing.front()));
}

Config to_config(const Leaves& leaves) {
  Config config;
  for (const auto& [path, node] : leaves) {
    const Field* field = find_field(path);
    if (field == nullptr) continue;  // one of Hydra's keys that have no effect
    const std::string problem = assign_field(*field, *node, config);
    if (!problem.empty())
      throw UserError(fmt::format("{}: {}: {}", node->place.str(), path, problem));
  }
  return config;
}

Given given_from(const Leaves& leaves, const std::string& file) {
  return Given{[&leaves](const std::string& key) {
                 const auto found = leaves.find(key);
                 return found != leaves.end() && found->second->kind != Kind::kNull;
               },
               [&leaves, file](const std::string& key) {
                 const auto found = leaves.find(key);
                 return (found == leaves.end() ? file : found->second->place.str()) + ": " + key;
               }};
}

void apply_overrides(Node& root, const std::vector<std::string>& overrides) {
  for (const std::string& text : overrides) {
    const Override change = parse_override(text);
    const auto parts = split_path(change.key);
    std::string parent;
    for (const std::string& part : parts) {
      const std::string path = parent.empty() ? part : parent + "." + part;
      if (path_kind(path) == PathKind::kUnknown && path_kind(parent) != PathKind::kKey) {
        fail_unknown(change.value.place, parent, part);
      }
      parent = path;
    }
    apply_override(root, change, true);
  }
}

Config load(const std::string& file, const std::vector<std::string>& overrides) {
  Node root = read_yaml(read_text(file), file);
  if (root.kind == Kind::kNull) root = Node::map();
  if (root.kind != Kind::kMap) {
    throw UserError(fmt::format(
        "{}: not a configuration: sections such as data_config: are expected at the top", file));
  }
  apply_overrides(root, overrides);
  check_known(root, "");
  resolve_interpolations(root);
  check_known(root, "");
  Leaves leaves;
  collect_leaves(root, "", leaves);
  check_missing(leaves, file);
  Config config = to_config(leaves);
  const Given given = given_from(leaves, file);
  complete_config(config, given);
  resolve_paths(config, given);
  return config;
}

}  // namespace

Config load_config(const std::string& file, const std::vector<std::string>& overrides) {
  try {
    return load(file, overrides);
  } catch (const UserError& e) {
    throw UserError(one_line(e.what()));
  }
}

}  // namespace ddp::train
