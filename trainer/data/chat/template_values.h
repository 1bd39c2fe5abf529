// Values of a chat template, with the semantics of Python and Jinja.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace ddp::train {

class TemplateValue;
struct TemplateNode;
using TemplateValues = std::vector<TemplateValue>;

/// Maximum nesting of lists and mappings: values are destroyed recursively.
inline constexpr int kDeepestTemplateValue = 100;

/// Immutable and cheap to copy, except that a namespace is shared and assignable. As in the sandbox
/// of transformers, templates cannot change lists and mappings.
class TemplateValue {
 public:
  struct Undefined {};
  struct List;
  struct Dict;
  struct Namespace;
  struct Loop;
  struct Function;
  using Text = std::shared_ptr<const std::string>;

  TemplateValue() : data_(Undefined{}) {}
  TemplateValue(std::nullptr_t) : data_(nullptr) {}
  TemplateValue(bool value) : data_(value) {}
  TemplateValue(int value) : data_(int64_t{value}) {}
  TemplateValue(int64_t value) : data_(value) {}
  TemplateValue(std::size_t value) : data_(static_cast<int64_t>(value)) {}
  TemplateValue(double value) : data_(value) {}
  TemplateValue(std::string text) : data_(std::make_shared<const std::string>(std::move(text))) {}
  TemplateValue(std::string_view text) : TemplateValue(std::string(text)) {}
  TemplateValue(const char* text) : TemplateValue(std::string(text)) {}
  TemplateValue(std::shared_ptr<Namespace> space) : data_(std::move(space)) {}
  TemplateValue(std::shared_ptr<const Loop> loop) : data_(std::move(loop)) {}
  /// Throws UserError if nested too deeply.
  static TemplateValue list(TemplateValues items, bool tuple = false);
  /// Python's other iterables: see List::type and List::shown.
  static TemplateValue iterable(std::string type, TemplateValues items, std::string shown = "");
  static TemplateValue dict(std::vector<std::pair<TemplateValue, TemplateValue>> items);
  static TemplateValue function(Function function);
  static TemplateValue from_json(const nlohmann::ordered_json& json);

  template <typename T>
  const T* get() const {
    return std::get_if<T>(&data_);
  }
  bool is_undefined() const { return get<Undefined>() != nullptr; }
  bool is_none() const { return get<std::nullptr_t>() != nullptr; }
  bool is_bool() const { return get<bool>() != nullptr; }
  bool is_text() const { return get<Text>() != nullptr; }
  bool is_float() const { return get<double>() != nullptr; }
  bool is_integer() const { return get<int64_t>() != nullptr || is_bool(); }
  bool is_number() const { return is_integer() || is_float(); }
  // Null if it is something else.
  const std::string* text() const { return held<const std::string>(); }
  const List* list() const { return held<const List>(); }
  const Dict* dict() const { return held<const Dict>(); }
  const Loop* loop() const { return held<const Loop>(); }
  const Function* function() const { return held<const Function>(); }
  Namespace* name_space() const { return held<Namespace>(); }

  int64_t integer() const { return is_bool() ? int64_t{*get<bool>()} : *get<int64_t>(); }
  double number() const { return is_float() ? *get<double>() : static_cast<double>(integer()); }

  bool is_true() const;
  /// An upper bound of the work to copy or print it, in bytes, charged to a run.
  std::size_t weight() const;
  int depth() const;
  /// Returns Python's name of its type.
  std::string type_name() const;

 private:
  template <typename T>
  T* held() const {
    const auto* found = get<std::shared_ptr<T>>();
    return found == nullptr ? nullptr : found->get();
  }

  std::variant<Undefined, std::nullptr_t, bool, int64_t, double, Text, std::shared_ptr<const List>,
               std::shared_ptr<const Dict>, std::shared_ptr<Namespace>, std::shared_ptr<const Loop>,
               std::shared_ptr<const Function>>
      data_;
};

struct TemplateValue::List {
  TemplateValues items;
  bool tuple = false;
  std::string type = {};   ///< range, generator, dict_keys and its like; empty: a list, or a tuple.
  std::string shown = {};  ///< As a range is printed; empty for others, and a part of one.
  std::size_t weight = 0;
  int depth = 1;
  mutable std::size_t taken = 0;  ///< How many elements iterations of a generator have consumed.
  static constexpr std::size_t kUnknown = SIZE_MAX;  ///< For `taken`, after a loop's break.

  bool is_generator() const { return type == "generator"; }
  bool has_elements() const { return type.empty() || type == "range"; }
};

struct TemplateValue::Dict {
  std::vector<std::pair<TemplateValue, TemplateValue>> items;
  std::unordered_map<std::string, std::size_t> index;
  std::size_t weight = 0;
  int depth = 1;

  /// Null if there is none.
  const TemplateValue* find(const TemplateValue& key) const;
};

struct TemplateValue::Namespace {
  std::unordered_map<std::string, TemplateValue> members;
};

/// The variable `loop` in a loop's body.
struct TemplateValue::Loop {
  std::shared_ptr<const TemplateValues> items;
  std::size_t at = 0;
  int value_depth = 1;
};

struct TemplateValue::Function {
  std::string name;                     ///< The name of a global, or of a method of `self`.
  std::shared_ptr<TemplateValue> self;  ///< Null for globals and macros.
  const TemplateNode* macro = nullptr;
  std::size_t scopes = 0;  ///< How many of a run's scopes a macro sees.
};

[[noreturn]] void refuse_value(const std::string& what);
/// As Jinja prints it.
std::string printed(const TemplateValue& value);
/// Python's repr().
std::string represented(const TemplateValue& value);

struct JsonStyle {
  bool ascii = false;
  bool sorted = false;
  int indent = -1;  ///< Below 0: one line.
  std::string between = ", ";
  std::string after_key = ": ";
};
/// As Python's json.dumps.
std::string json_text(const TemplateValue& value, const JsonStyle& style);

bool equal(const TemplateValue& left, const TemplateValue& right);
/// Returns a negative value, 0 or a positive one. Throws UserError if they have no order.
int compared(const TemplateValue& left, const TemplateValue& right);
bool contains(const TemplateValue& container, const TemplateValue& part);
/// Returns the items that a loop iterates over. Throws UserError if it is not iterable.
TemplateValues items_of(const TemplateValue& value);
/// Characters of a text.
std::vector<std::string_view> characters(std::string_view text);

}  // namespace ddp::train
