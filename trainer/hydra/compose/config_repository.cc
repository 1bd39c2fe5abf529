#include "trainer/hydra/compose/config_repository.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "trainer/hydra/compose/hydra_block.h"
#include "trainer/hydra/yaml/yaml_reader.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/log/message.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;

/// What to give instead of a file that cannot be read.
std::string near_file(const std::string& file) {
  const fs::path path(file);
  const fs::path folder = path.has_parent_path() ? path.parent_path() : ".";
  std::error_code error;
  if (!fs::is_directory(folder, error)) return fmt::format("no such folder: '{}'", folder.string());
  std::vector<std::string> names;
  for (fs::directory_iterator it(folder, error), end; it != end; it.increment(error)) {
    const std::string extension = it->path().extension().string();
    if (extension == ".yaml" || extension == ".yml")
      names.push_back(it->path().filename().string());
  }
  if (std::erase(names, path.filename().string()) > 0)
    return "make it readable, or give another file with --config";
  const std::string before = (folder / "").lexically_normal().string();
  return did_you_mean(path.filename().string(), names, "give a YAML file with --config",
                      before == "." ? "" : before);
}

std::string read_text(const std::string& file) {
  constexpr std::size_t kLargest = 4 << 20;
  errno = 0;
  std::ifstream stream(file, std::ios::binary);
  std::string text(kLargest + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(stream.gcount()));
  if (stream.bad() || !stream.is_open() || errno == EISDIR) {
    throw UserError(fmt::format("{}: cannot read the config file: {}; {}", file,
                                std::strerror(errno), near_file(file)));
  }
  if (text.size() > kLargest)
    throw UserError(fmt::format("{}: is larger than {} bytes; give a YAML file", file, kLargest));
  return text;
}

/// `# @package a.b` in the comment lines at the start of the text.
std::optional<std::string> package_header(const std::string& text, const std::string& file) {
  constexpr std::string_view kBlank = " \t\r\f\v";
  constexpr std::size_t kHeader = 512;
  std::optional<std::string> package;
  std::istringstream lines(text.substr(0, kHeader));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t hash = line.find_first_not_of(kBlank);
    if (hash == std::string::npos) continue;
    const std::size_t at = line.find_first_not_of(kBlank, hash + 1);
    if (line[hash] != '#' || at == std::string::npos || line[at] != '@') break;
    std::istringstream words(line.substr(at));
    std::string key;
    std::string value;
    std::string more;
    if (!(words >> key >> value) || words >> more)
      throw UserError(fmt::format("{}: malformed header '{}'; write # @package NAME", file, line));
    if (key == "@package") package = value;
  }
  return package;
}

/// As OmegaConf.load, which hands a text alone to OmegaConf.create.
Node load_yaml(const std::string& text, const std::string& file) {
  Node root = read_yaml(text, file);
  if (root.kind == Kind::kString) return read_yaml_container(root.text, file);
  return root.kind == Kind::kNull ? Node::map() : root;
}

std::unique_ptr<LoadedConfig> parsed(const std::string& text, const std::string& file) {
  auto loaded = std::make_unique<LoadedConfig>();
  loaded->file = file;
  loaded->package = package_header(text, file);
  loaded->content = load_yaml(text, file);
  if (!loaded->content.is_container()) fail_no_map(file);
  if (const Node* defaults = loaded->content.find("defaults")) {
    loaded->defaults = parse_defaults(*defaults);
    std::erase_if(loaded->content.entries,
                  [defaults](const Entry& entry) { return &entry.value == defaults; });
  }
  return loaded;
}

std::string with_extension(const std::string& path) {
  return path.ends_with(".yaml") ? path : path + ".yaml";
}

}  // namespace

void fail_no_map(const std::string& file) {
  throw UserError(file +
                  ": not a configuration: sections such as data_config: are expected at the top");
}

ConfigSource ConfigSource::of_file(const std::string& file) {
  const fs::path path(file);
  const std::string folder = path.has_parent_path() ? path.parent_path().string() : ".";
  std::string name = path.filename().string();
  if (name.size() > 5 && name.ends_with(".yaml")) name.resize(name.size() - 5);
  return {folder, name, file, {}, false};
}

ConfigSource ConfigSource::of_name(const std::string& folder, const std::string& name) {
  std::string file = folder + "/" + name;
  std::error_code error;
  if (name.ends_with(".yml") || !fs::exists(with_extension(file), error)) {
    if (fs::is_regular_file(file + ".yml", error)) file += ".yml";
  }
  if (!file.ends_with(".yaml") && !file.ends_with(".yml")) file += ".yaml";
  return {folder, name, file, {}, false};
}

ConfigRepository::ConfigRepository(ConfigSource source)
    : source_(std::move(source)), folders_{source_.folder} {
  for (const std::string& folder : source_.further) {
    std::error_code error;
    if (!fs::is_directory(folder, error)) {
      throw UserError(fmt::format("--config-dir: no such folder: '{}'; check the path", folder));
    }
  }
  folders_.insert(folders_.end(), source_.further.begin(), source_.further.end());
}

std::string ConfigRepository::file_of(const std::string& path) const {
  if (path == source_.name) {
    std::error_code error;
    const bool elsewhere = !fs::exists(source_.file, error) && !source_.further.empty();
    if (!elsewhere) return source_.file;
  }
  for (const std::string& folder : folders_) {
    const std::string file = (fs::path(folder) / with_extension(path)).string();
    std::error_code error;
    if (fs::is_regular_file(file, error)) return file;
  }
  return "";
}

const LoadedConfig* ConfigRepository::load(const std::string& path) {
  const auto known = loaded_.find(path);
  if (known != loaded_.end()) return known->second.get();
  std::unique_ptr<LoadedConfig>& slot = loaded_[path];
  if (const std::string* text = hydra_config_text(path)) {
    slot = parsed(*text, path);
  } else if (const std::string file = file_of(path); !file.empty()) {
    slot = parsed(read_text(file), file);  // fails if the primary one does not exist
  }
  return slot.get();
}

bool ConfigRepository::has_group(const std::string& path) const {
  std::error_code error;
  return hydra_has_group(path) ||
         std::any_of(folders_.begin(), folders_.end(), [&](const std::string& folder) {
           return fs::is_directory(fs::path(folder) / path, error);
         });
}

std::vector<std::string> ConfigRepository::options(const std::string& group) const {
  std::set<std::string> names;
  for (const std::string& name : hydra_options(group)) names.insert(name);
  for (const std::string& folder : folders_) {
    std::error_code error;
    for (fs::directory_iterator it(fs::path(folder) / group, error), end; it != end;
         it.increment(error)) {
      if (it->is_regular_file(error) && it->path().extension() == ".yaml")
        names.insert(it->path().stem().string());
    }
  }
  return {names.begin(), names.end()};
}

}  // namespace ddp::train
