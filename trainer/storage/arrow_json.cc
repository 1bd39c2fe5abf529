#include "trainer/storage/arrow_json.h"

#include <arrow/array/array_nested.h>
#include <arrow/extension_type.h>
#include <arrow/result.h>
#include <arrow/scalar.h>
#include <arrow/type_traits.h>
#include <fmt/format.h>

#include <iterator>
#include <string_view>

#include "trainer/runtime/error.h"
#include "trainer/storage/table_texts.h"

namespace ddp::train {
namespace {

void append_quoted(std::string_view text, std::string& json) {
  json += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') json += '\\';
    if (static_cast<unsigned char>(c) < 0x20U) {
      fmt::format_to(std::back_inserter(json), "\\u{:04x}", c);
    } else {
      json += c;
    }
  }
  json += '"';
}

template <class Strings>
void append_string(const arrow::Array& array, int64_t row, std::string& json) {
  append_quoted(static_cast<const Strings&>(array).GetView(row), json);
}

template <class Lists>
void append_list(const arrow::Array& array, int64_t row, std::string& json) {
  const auto& lists = static_cast<const Lists&>(array);
  const int64_t begin = lists.value_offset(row);
  const auto& values = *lists.values();
  json += '[';
  for (int64_t i = 0; i < lists.value_length(row); ++i) {
    if (i > 0) json += ',';
    append_json(values, begin + i, json);
  }
  json += ']';
}

void append_struct(const arrow::Array& array, int64_t row, std::string& json) {
  const auto& structs = static_cast<const arrow::StructArray&>(array);
  json += '{';
  for (int i = 0; i < structs.num_fields(); ++i) {
    if (i > 0) json += ',';
    append_quoted(structs.struct_type()->field(i)->name(), json);
    json += ':';
    append_json(*structs.field(i), row, json);
  }
  json += '}';
}

void append_scalar(const arrow::Array& array, int64_t row, std::string& json) {
  const auto type = array.type_id();
  const std::string text = array.GetScalar(row).ValueOrDie()->ToString();
  const bool number = arrow::is_integer(type) || arrow::is_floating(type);
  if (type != arrow::Type::BOOL && !number) return append_quoted(text, json);
  json += text.find("nan") == std::string::npos && text.find("inf") == std::string::npos ? text
                                                                                         : "null";
}

}  // namespace

void append_json(const arrow::Array& array, int64_t row, std::string& json) {
  using Type = arrow::Type;
  if (json.size() > kMostRowBytes) throw UserError("a row has more than 64 MB; divide it");
  if (array.IsNull(row)) {
    json += "null";
    return;
  }
  switch (array.type_id()) {
    case Type::STRING:
      return append_string<arrow::StringArray>(array, row, json);
    case Type::LARGE_STRING:
      return append_string<arrow::LargeStringArray>(array, row, json);
    case Type::STRING_VIEW:
      return append_string<arrow::StringViewArray>(array, row, json);
    case Type::LIST:
    case Type::MAP:
      return append_list<arrow::ListArray>(array, row, json);
    case Type::LARGE_LIST:
      return append_list<arrow::LargeListArray>(array, row, json);
    case Type::FIXED_SIZE_LIST:
      return append_list<arrow::FixedSizeListArray>(array, row, json);
    case Type::STRUCT:
      return append_struct(array, row, json);
    case Type::DICTIONARY: {
      const auto& coded = static_cast<const arrow::DictionaryArray&>(array);
      return append_json(*coded.dictionary(), coded.GetValueIndex(row), json);
    }
    case Type::EXTENSION:
      return append_json(*static_cast<const arrow::ExtensionArray&>(array).storage(), row, json);
    case Type::BINARY:
    case Type::LARGE_BINARY:
    case Type::BINARY_VIEW:
    case Type::FIXED_SIZE_BINARY:
      json += "null";
      return;
    default:
      return append_scalar(array, row, json);
  }
}

}  // namespace ddp::train
