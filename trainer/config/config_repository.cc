#include "trainer/config/config_repository.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

#include "trainer/config/hydra_block.h"
#include "trainer/config/suggest.h"
#include "trainer/config/yaml_reader.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;

/// \r\n and \r become \n, as Python opens a text file.
std::string with_plain_breaks(const std::string& text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      out += text[i];
    } else if (i + 1 == text.size() || text[i + 1] != '\n') {
      out += '\n';
    }
  }
  return out;
}

/// What to give instead of a file that cannot be read.
std::string near_file(const std::string& file) {
  const fs::path path(file);
  const fs::path folder = path.has_parent_path() ? path.parent_path() : ".";
  std::error_code error;
  if (!fs::is_directory(folder, error))
    return fmt::format("there is no folder '{}'", folder.string());
  std::vector<std::string> names;
  for (fs::directory_iterator it(folder, error), end; it != end; it.increment(error)) {
    const std::string extension = it->path().extension().string();
    if (extension == ".yaml" || extension == ".yml")
      names.push_back(it->path().filename().string());
  }
  const std::string near = nearest(path.filename().string(), names);
  if (near.empty() || near == path.filename().string()) return "give a YAML file with --config";
  return fmt::format("did you mean '{}'?", (folder / near).lexically_normal().string());
}

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
    throw UserError(fmt::format("{}: cannot read the config file: {}; {}", file,
                                std::strerror(error), near_file(file)));
  }
  return with_plain_breaks(text);
}

std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin < line.size();) {
    const std::size_t end = std::min(line.find(' ', begin), line.size());
    if (end > begin) words.push_back(line.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

/// `# @package a.b` in the comment lines at the start of the text.
std::optional<std::string> package_header(const std::string& text, const std::string& file) {
  constexpr std::string_view kBlank = " \t\r\f\v";
  constexpr std::size_t kHeader = 512;
  const std::string head = text.substr(0, kHeader);
  std::optional<std::string> package;
  for (std::size_t begin = 0; begin < head.size();) {
    const std::size_t end = std::min(head.find('\n', begin), head.size());
    std::string line = head.substr(begin, end - begin);
    begin = end + 1;
    line.erase(0, std::min(line.find_first_not_of(kBlank), line.size()));
    line.erase(line.find_last_not_of(kBlank) + 1);
    if (line.empty()) continue;
    const std::size_t at = line.find_first_not_of(kBlank, 1);
    if (line.front() != '#' || at == std::string::npos || line[at] != '@') break;
    const auto words = words_of(line.substr(at));
    if (words.size() != 2)
      throw UserError(fmt::format("{}: Expected header format: KEY VALUE, got '{}'", file, line));
    if (words[0] == "@package") package = words[1];
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
  if (!loaded->content.is_container()) {
    throw UserError(fmt::format(
        "{}: not a configuration: sections such as data_config: are expected at the top", file));
  }
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
      throw UserError(fmt::format(
          "--config-dir: Additional config directory '{}' not found; give a folder", folder));
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
    slot = parsed(read_text(file), file);  // says so when the primary one is not there
  }
  return slot.get();
}

bool ConfigRepository::has_config(const std::string& path) const {
  return hydra_config_text(path) != nullptr || !file_of(path).empty();
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
