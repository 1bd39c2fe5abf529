#include "trainer/runtime/files/remote_path.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

constexpr std::array<std::string_view, 3> kRemoteSchemes = {"s3://", "gs://", "gcs://"};
constexpr std::string_view kFileScheme = "file://";

/// `s3://` of `s3://bucket/key`; empty when there is none.
std::string_view scheme_of(std::string_view path) {
  const std::size_t end = path.find("://");
  if (end == std::string_view::npos || end == 0) return {};
  for (const char c : path.substr(0, end)) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '+' && c != '-') return {};
  }
  return path.substr(0, end + 3);
}

std::string decode_percent(const std::string& path, std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    unsigned value = 0;
    const char* first = text.data() + i + 1;
    const bool two = i + 2 < text.size();
    if (!two || std::from_chars(first, first + 2, value, 16).ptr != first + 2 || value == 0)
      throw UserError(fmt::format(
          "{}: '%' must be followed by two hex digits; write %25 for a literal %", path));
    decoded += static_cast<char>(value);
    i += 2;
  }
  return decoded;
}

bool sound_key(std::string_view key) {
  for (std::size_t at = 0; at <= key.size();) {
    const std::size_t end = std::min(key.find('/', at), key.size());
    const std::string_view part = key.substr(at, end - at);
    if (part.empty() || part == "." || part == "..") return false;
    at = end + 1;
  }
  return true;
}

}  // namespace

bool is_remote(std::string_view path) {
  for (const std::string_view scheme : kRemoteSchemes) {
    if (path.starts_with(scheme)) return true;
  }
  return false;
}

RemotePath split_remote(const std::string& path) {
  const std::string_view scheme = scheme_of(path);
  const std::string_view rest = std::string_view(path).substr(scheme.size());
  if (!is_remote(path) || rest.find('/') == std::string_view::npos || !sound_key(rest)) {
    throw UserError(fmt::format("{}: not an object name; write {}bucket/folder/name", path,
                                is_remote(path) ? scheme : "s3://"));
  }
  const std::size_t slash = path.rfind('/');
  return {path.substr(0, slash), path.substr(slash + 1)};
}

std::string local_path(const std::string& path) {
  const std::string_view scheme = scheme_of(path);
  if (scheme.empty()) return path;
  if (scheme != kFileScheme)
    throw UserError(fmt::format("{}: unsupported scheme '{}'; use a path, file://{}", path, scheme,
                                is_remote(path) ? "" : ", s3:// or gs://"));
  std::string_view rest = std::string_view(path).substr(scheme.size());
  constexpr std::string_view kHere = "localhost/";
  if (rest.starts_with(kHere)) rest.remove_prefix(kHere.size() - 1);
  if (!rest.starts_with('/'))
    throw UserError(
        fmt::format("{}: file:// needs an absolute path; write file:///{}", path, rest));
  return decode_percent(path, rest);
}

}  // namespace ddp::train
