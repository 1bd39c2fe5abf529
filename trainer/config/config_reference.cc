#include "trainer/config/config_reference.h"

#include <fmt/format.h>

#include "trainer/config/config_fields.h"

namespace ddp::train {
namespace {

/// A | inside a cell would end it.
std::string cell(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

std::string row(const Field& field, const std::string& key) {
  return fmt::format("| `{}` | {} | {} | {} | {} | {} |\n", key, cell(field_type(field)),
                     field.range.str(), field_default(field), field.unit, cell(field.meaning));
}

}  // namespace

std::string config_reference_markdown() {
  std::string out;
  std::string section;
  for (const Field& field : config_fields()) {
    const std::size_t dot = field.path.find('.');
    if (field.path.substr(0, dot) != section) {
      section = field.path.substr(0, dot);
      out += fmt::format(
          "{}## {}\n\n| key | type | range | default | unit | meaning "
          "|\n|---|---|---|---|---|---|\n",
          out.empty() ? "" : "\n", section);
    }
    out += row(field, field.path.substr(dot + 1));
  }
  return out;
}

}  // namespace ddp::train
