// Reads and writes the fields of a message's JSON object. Both classes have the same functions, so
// that fields(io, message) lists the fields of a message once, for both directions.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace ddp::launch {

using ControlJson = nlohmann::json;

inline constexpr std::size_t kLongestText = 4096;

/// Truncates texts and lists to what a report can show; does not check ranges.
class FieldWriter {
 public:
  void text(const char* name, const std::string& value) { object_[name] = value; }
  /// Control characters, which a report does not show, would take six bytes each in JSON. The end
  /// is more informative than the beginning.
  void prose(const char* name, const std::string& value, std::size_t longest = kLongestText) {
    object_[name] = shortened(value, longest);
  }
  template <typename Number>
  void number(const char* name, Number value, long long, long long) {
    object_[name] = value;
  }
  void real(const char* name, double value) { object_[name] = value; }
  void flag(const char* name, bool value, bool /*optional*/ = false) { object_[name] = value; }
  void time(const char* name, std::chrono::nanoseconds value) {
    object_[name] = std::chrono::duration_cast<std::chrono::milliseconds>(value).count();
  }
  void pair(const char* name, double first, double second) { object_[name] = {first, second}; }
  void texts(const char* name, const std::map<std::string, std::string>& values, std::size_t) {
    auto object = ControlJson::object();
    for (const auto& [key, value] : values) object[key] = shortened(value, kLongestText);
    object_[name] = std::move(object);
  }
  template <typename Part>
  void part(const char* name, Part& value) {
    object_[name] = written(value);
  }
  template <typename Part>
  void part(const char* name, std::optional<Part>& value) {
    if (value) part(name, *value);
  }
  template <typename Item>
  void list(const char* name, std::vector<Item>& items, std::size_t most) {
    auto array = ControlJson::array();
    for (std::size_t i = 0; i < std::min(items.size(), most); ++i)
      array.push_back(written(items[i]));
    object_[name] = std::move(array);
  }
  const ControlJson& object() const { return object_; }

  static std::string shortened(const std::string& text, std::size_t longest) {
    std::string end = text.size() <= longest ? text : text.substr(text.size() - longest);
    const auto is_control = [](char c) {
      return static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' && c != '\r';
    };
    std::replace_if(end.begin(), end.end(), is_control, '?');
    return end;
  }

 private:
  template <typename Part>
  static ControlJson written(Part& value) {
    FieldWriter writer;
    fields(writer, value);
    return std::move(writer.object_);
  }

  ControlJson object_ = ControlJson::object();
};

/// Throws std::invalid_argument if a field is absent, of another type, or out of range.
class FieldReader {
 public:
  explicit FieldReader(const ControlJson& object) : object_(object) {
    if (!object.is_object()) throw std::invalid_argument("not an object");
  }
  void text(const char* name, std::string& value) const {
    const auto& field = find(name);
    check(field.is_string() && field.get_ref<const std::string&>().size() <= kLongestRead, name);
    value = field;
  }
  void prose(const char* name, std::string& value, std::size_t = 0) const { text(name, value); }
  template <typename Number>
  void number(const char* name, Number& value, long long low, long long high) const {
    check(find(name).is_number_integer(), name);
    const auto number = find(name).get<long long>();
    check(number >= low && number <= high, name);
    value = static_cast<Number>(number);
  }
  void real(const char* name, double& value) const {
    check(find(name).is_number(), name);
    value = find(name);
  }
  void flag(const char* name, bool& value, bool optional = false) const {
    if (optional && !object_.contains(name)) return;
    check(find(name).is_boolean(), name);
    value = find(name);
  }
  template <typename Time>
  void time(const char* name, Time& value) const {
    constexpr long long kYear = 365LL * 24 * 3600 * 1000;
    long long ms = 0;
    number(name, ms, 0, 100 * kYear);
    value = std::chrono::milliseconds(ms);
  }
  void pair(const char* name, double& first, double& second) const {
    const auto& two = find(name);
    check(two.is_array() && two.size() == 2 && two[0].is_number() && two[1].is_number(), name);
    first = two[0];
    second = two[1];
  }
  void texts(const char* name, std::map<std::string, std::string>& values, std::size_t most) const {
    check(find(name).is_object() && find(name).size() <= most, name);
    const FieldReader reader(find(name));
    for (const auto& [key, value] : find(name).items()) reader.text(key.c_str(), values[key]);
  }
  template <typename Part>
  void part(const char* name, Part& value) const {
    const FieldReader reader(find(name));
    fields(reader, value);
  }
  template <typename Part>
  void part(const char* name, std::optional<Part>& value) const {
    if (object_.contains(name)) part(name, value.emplace());
  }
  template <typename Item>
  void list(const char* name, std::vector<Item>& items, std::size_t most) const {
    check(find(name).is_array() && find(name).size() <= most, name);
    for (const auto& object : find(name)) {
      const FieldReader reader(object);
      fields(reader, items.emplace_back());
    }
  }

 private:
  static constexpr std::size_t kLongestRead = 16 << 10;  // 4 KiB with each byte made U+FFFD

  static void check(bool condition, const char* name) {
    if (!condition) throw std::invalid_argument(name);
  }
  const ControlJson& find(const char* name) const {
    const auto found = object_.find(name);
    check(found != object_.end(), name);
    return *found;
  }

  const ControlJson& object_;
};

}  // namespace ddp::launch
