#include "trainer/config/show/key_reference.h"

#include <fmt/format.h>

#include "trainer/config/keys/key_table.h"

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

/// The text in lines of at most 96 characters, each after `margin` spaces.
std::string wrapped(const std::string& text, std::size_t margin) {
  constexpr std::size_t kWidth = 96;
  std::string out;
  std::string line(margin, ' ');
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (line.size() > margin && line.size() + word.size() + 1 > kWidth) {
      out += line + "\n";
      line.assign(margin, ' ');
    }
    if (line.size() > margin) line += ' ';
    line += word;
    begin = end + 1;
  }
  return out + line + "\n";
}

std::string reference_entry(const Field& field) {
  std::string head = fmt::format("  {}: {}", field.path, field_type(field));
  const std::string range = field.range.str();
  if (!range.empty()) head += " " + range;
  if (!field.unit.empty()) head += ", " + field.unit;
  return head + fmt::format("; default {}\n", field_default(field)) + wrapped(field.meaning, 6);
}

}  // namespace

std::string config_reference_text() {
  std::string out =
      "Every key of the configuration: type, range and unit, default, meaning. Give a value in "
      "the\n"
      "YAML file (section, then key indented below it) or on the command line "
      "(section.key=value).\n"
      "How values are written, composed and looked at: docs/config.md\n";
  std::string section;
  for (const Field& field : config_fields()) {
    const std::string own = field.path.substr(0, field.path.find('.'));
    if (own != section) out += fmt::format("\n{}\n", own);
    section = own;
    out += reference_entry(field);
  }
  return out;
}

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
