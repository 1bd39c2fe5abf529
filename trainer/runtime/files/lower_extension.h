// File types by name, case-insensitive: Windows and cameras write .CSV and .JPG.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>

namespace ddp::train {

/// ".csv" for "Reviews.CSV"; "" without an extension. Only ASCII letters are lowered.
inline std::string lower_extension(const std::filesystem::path& path) {
  std::string end = path.extension().string();
  std::transform(end.begin(), end.end(), end.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return end;
}

}  // namespace ddp::train
