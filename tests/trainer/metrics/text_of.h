// A file's content.
#pragma once

#include <fstream>
#include <iterator>
#include <string>

namespace ddp::test {

inline std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace ddp::test
