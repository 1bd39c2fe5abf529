// Reads or writes the fields of a JSON object, so that fields(io, value) lists the fields of a
// message, or of a file, once for both directions.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ddp::launch {

using ControlJson = nlohmann::json;

inline constexpr std::size_t kLongestText = 4096;

/// The end of a text, which is more informative than the beginning. Control characters, which a
/// report does not show, would take six bytes each in JSON.
inline std::string shortened(const std::string& text, std::size_t longest) {
  std::string end = text.size() <= longest ? text : text.substr(text.size() - longest);
  const auto is_control = [](char c) {
    return static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' && c != '\r';
  };
  std::replace_if(end.begin(), end.end(), is_control, '?');
  return end;
}

/// Throws std::exception if the text is malformed or nested more deeply.
inline ControlJson parse_json(std::string_view text, int deepest) {
  return ControlJson::parse(text, [deepest](int level, ControlJson::parse_event_t, ControlJson&) {
    if (level > deepest) throw std::invalid_argument("too deep");
    return true;
  });
}

/// Reading throws std::invalid_argument if a field is absent, of another type, or out of range.
/// Writing truncates prose and lists to what a report can show and does not check ranges.
class Fields {
 public:
  static Fields reader(const ControlJson& object) {
    require(object.is_object(), "not an object");
    return Fields(&object);
  }
  static Fields writer() { return Fields(nullptr); }
  const ControlJson& written() const { return written_; }
  static void require(bool condition, const char* what) {
    if (!condition) throw std::invalid_argument(what);
  }

  void text(const char* name, std::string& value) {
    if (!reads()) return put(name, value);
    const auto& field = find(name);
    require(field.is_string() && field.get_ref<const std::string&>().size() <= kLongestRead, name);
    value = field;
  }
  void prose(const char* name, std::string& value, std::size_t longest = kLongestText) {
    reads() ? text(name, value) : put(name, shortened(value, longest));
  }
  template <typename Number>
  void number(const char* name, Number& value, long long low, long long high) {
    if (!reads()) return put(name, value);
    require(find(name).is_number_integer(), name);
    const auto number = find(name).get<long long>();
    require(number >= low && number <= high, name);
    value = static_cast<Number>(number);
  }
  void real(const char* name, double& value) {
    if (!reads()) return put(name, value);
    require(find(name).is_number(), name);
    value = find(name);
  }
  void flag(const char* name, bool& value, bool optional = false) {
    if (!reads()) return put(name, value);
    if (optional && !has(name)) return;
    require(find(name).is_boolean(), name);
    value = find(name);
  }
  template <typename Time>
  void time(const char* name, Time& value) {
    constexpr long long kYear = 365LL * 24 * 3600 * 1000;
    long long ms = std::chrono::duration_cast<std::chrono::milliseconds>(value).count();
    number(name, ms, 0, 100 * kYear);
    if (reads()) value = std::chrono::milliseconds(ms);
  }
  void pair(const char* name, double& first, double& second) {
    if (!reads()) return put(name, ControlJson{first, second});
    const auto& two = find(name);
    require(two.is_array() && two.size() == 2 && two[0].is_number() && two[1].is_number(), name);
    first = two[0];
    second = two[1];
  }
  void texts(const char* name, std::map<std::string, std::string>& values, std::size_t most) {
    Fields nested = reads() ? reader(find(name)) : writer();
    if (reads()) {
      require(find(name).size() <= most, name);
      for (const auto& [key, value] : find(name).items()) nested.text(key.c_str(), values[key]);
    } else {
      for (auto& [key, value] : values) nested.prose(key.c_str(), value);
      put(name, nested.written_);
    }
  }
  template <typename Part>
  void part(const char* name, Part& value) {
    Fields nested = reads() ? reader(find(name)) : writer();
    fields(nested, value);
    if (!reads()) put(name, nested.written_);
  }
  template <typename Part>
  void part(const char* name, std::optional<Part>& value) {
    if (reads() && has(name)) value.emplace();
    if (value) part(name, *value);
  }
  template <typename Item>
  void list(const char* name, std::vector<Item>& items, std::size_t most) {
    if (reads()) {
      require(find(name).is_array() && find(name).size() <= most, name);
      items.resize(find(name).size());
    }
    auto array = ControlJson::array();
    for (std::size_t i = 0; i < std::min(items.size(), most); ++i) {
      Fields item = reads() ? reader(find(name)[i]) : writer();
      fields(item, items[i]);
      array.push_back(std::move(item.written_));
    }
    if (!reads()) put(name, std::move(array));
  }

 private:
  static constexpr std::size_t kLongestRead = 16 << 10;  // 4 KiB with each byte made U+FFFD

  explicit Fields(const ControlJson* object) : object_(object) {}
  bool reads() const { return object_ != nullptr; }
  bool has(const char* name) const { return object_->contains(name); }
  const ControlJson& find(const char* name) const {
    const auto found = object_->find(name);
    require(found != object_->end(), name);
    return *found;
  }
  void put(const char* name, ControlJson value) { written_[name] = std::move(value); }

  const ControlJson* object_;  // that is read; nullptr: written_ is written
  ControlJson written_ = ControlJson::object();
};

}  // namespace ddp::launch
