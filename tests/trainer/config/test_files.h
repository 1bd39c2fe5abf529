// A folder for one test, and the text of the error that something ends with.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace ddp::train::test {

/// A fresh folder that is the current directory until the test ends.
class TestFolder {
 public:
  TestFolder() : before_(std::filesystem::current_path()) {
    std::string name = (std::filesystem::temp_directory_path() / "ddp_config_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    path_ = std::filesystem::canonical(name);
    std::filesystem::current_path(path_);
  }
  ~TestFolder() {
    std::filesystem::current_path(before_);
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  std::string path(const std::string& name) const { return (path_ / name).string(); }
  std::string str() const { return path_.string(); }

 private:
  std::filesystem::path before_;
  std::filesystem::path path_;
};

inline void write_file(const std::string& name, const std::string& text) {
  std::ofstream(name, std::ios::binary) << text;
}

inline std::string read_file(const std::string& name) {
  std::ifstream stream(name, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

/// What `action` throws as an E, or "no error".
template <class E, class Action>
std::string error_of(Action&& action) {
  try {
    action();
  } catch (const E& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace ddp::train::test
