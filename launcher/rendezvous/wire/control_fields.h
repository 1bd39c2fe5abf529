// Typed access to the fields of a message's JSON object.
#pragma once

#include <chrono>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

namespace ddp::launch {

using ControlJson = nlohmann::json;

/// Throws std::invalid_argument if a field is absent, of another type, or out of range.
class ControlFields {
 public:
  explicit ControlFields(const ControlJson& object) : object_(object) {
    if (!object.is_object()) throw std::invalid_argument("not an object");
  }
  std::string text(const char* name) const {
    const auto* value = find(name);
    if (!value->is_string() || value->get_ref<const std::string&>().size() > kLongestRead)
      throw std::invalid_argument(name);
    return *value;
  }
  long long number(const char* name, long long low, long long high) const {
    const auto* value = find(name);
    if (!value->is_number_integer()) throw std::invalid_argument(name);
    const auto number = value->get<long long>();
    if (number < low || number > high) throw std::invalid_argument(name);
    return number;
  }
  int integer(const char* name, int low, int high) const {
    return static_cast<int>(number(name, low, high));
  }
  double real(const char* name) const {
    const auto* value = find(name);
    if (!value->is_number()) throw std::invalid_argument(name);
    return *value;
  }
  bool flag(const char* name) const {
    const auto* value = find(name);
    if (!value->is_boolean()) throw std::invalid_argument(name);
    return *value;
  }
  std::chrono::milliseconds time(const char* name) const {
    constexpr long long kYear = 365LL * 24 * 3600 * 1000;
    return std::chrono::milliseconds(number(name, 0, 100 * kYear));
  }
  const ControlJson& list(const char* name, std::size_t most) const {
    const auto* value = find(name);
    if (!value->is_array() || value->size() > most) throw std::invalid_argument(name);
    return *value;
  }
  const ControlJson& object(const char* name) const { return *find(name); }
  bool has(const char* name) const { return object_.find(name) != object_.end(); }

 private:
  static constexpr std::size_t kLongestRead = 16 << 10;  // 4 KiB with each byte made U+FFFD

  const ControlJson* find(const char* name) const {
    const auto found = object_.find(name);
    if (found == object_.end()) throw std::invalid_argument(name);
    return &*found;
  }

  const ControlJson& object_;
};

}  // namespace ddp::launch
