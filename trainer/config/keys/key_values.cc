// Between a field of Config and a Node: OmegaConf's typed merging, plus 3.0 and 1e3 for integers.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <type_traits>

#include "trainer/config/keys/key_table.h"
#include "trainer/config/yaml/python_number.h"
#include "trainer/runtime/message.h"

namespace ddp::train {
namespace {

template <class E>
struct Choice {
  std::string_view name;
  E value;
};

// The first name of a value is the one that is written; the others are accepted as well.
constexpr Choice<Activation> kActivations[] = {{"gelu", Activation::kGelu},
                                               {"gelu_tanh", Activation::kGeluTanh},
                                               {"gelu_new", Activation::kGeluTanh}};
constexpr Choice<DataFormat> kDataFormats[] = {
    {"auto", DataFormat::kAuto}, {"text", DataFormat::kText}, {"tokens", DataFormat::kTokens}};
constexpr Choice<AmpDtype> kAmpDtypes[] = {{"float16", AmpDtype::kFloat16},
                                           {"bfloat16", AmpDtype::kBFloat16},
                                           {"fp16", AmpDtype::kFloat16},
                                           {"bf16", AmpDtype::kBFloat16}};
constexpr Choice<DeviceChoice> kDevices[] = {
    {"auto", DeviceChoice::kAuto}, {"cpu", DeviceChoice::kCpu}, {"cuda", DeviceChoice::kCuda}};
constexpr Choice<Backend> kBackends[] = {
    {"auto", Backend::kAuto}, {"gloo", Backend::kGloo}, {"nccl", Backend::kNccl}};
constexpr Choice<IfBusy> kIfBusy[] = {{"skip", IfBusy::kSkip}, {"wait", IfBusy::kWait}};
constexpr Choice<BadStepPolicy> kBadStepPolicies[] = {{"skip", BadStepPolicy::kSkip},
                                                      {"rollback", BadStepPolicy::kRollback},
                                                      {"stop", BadStepPolicy::kStop}};
constexpr Choice<OptimizerName> kOptimizers[] = {{"adamw", OptimizerName::kAdamW},
                                                 {"adam", OptimizerName::kAdam},
                                                 {"sgd", OptimizerName::kSgd},
                                                 {"muon", OptimizerName::kMuon}};
constexpr Choice<LrSchedule> kLrSchedules[] = {{"constant", LrSchedule::kConstant},
                                               {"linear", LrSchedule::kLinear},
                                               {"polynomial", LrSchedule::kPolynomial},
                                               {"cosine", LrSchedule::kCosine},
                                               {"wsd", LrSchedule::kWsd},
                                               {"one_cycle", LrSchedule::kOneCycle},
                                               {"constant_with_warmup", LrSchedule::kConstant},
                                               {"cosine_with_min_lr", LrSchedule::kCosine},
                                               {"warmup_stable_decay", LrSchedule::kWsd}};

constexpr Choice<ProgressStyle> kProgressStyles[] = {
    {"auto", ProgressStyle::kAuto}, {"plain", ProgressStyle::kPlain}, {"off", ProgressStyle::kOff}};

const auto& choices(const DataFormat*) { return kDataFormats; }
const auto& choices(const Activation*) { return kActivations; }
const auto& choices(const AmpDtype*) { return kAmpDtypes; }
const auto& choices(const DeviceChoice*) { return kDevices; }
const auto& choices(const Backend*) { return kBackends; }
const auto& choices(const IfBusy*) { return kIfBusy; }
const auto& choices(const OptimizerName*) { return kOptimizers; }
const auto& choices(const LrSchedule*) { return kLrSchedules; }
const auto& choices(const BadStepPolicy*) { return kBadStepPolicies; }
const auto& choices(const ProgressStyle*) { return kProgressStyles; }

template <class E>
std::vector<std::string> choice_names() {
  std::vector<std::string> names;
  for (const auto& choice : choices(static_cast<const E*>(nullptr)))
    names.emplace_back(choice.name);
  return names;
}

std::optional<int64_t> as_int(const Node& node) {
  if (node.kind == Kind::kInt) return node.integer;
  if (node.kind == Kind::kString) {
    if (const auto parsed = python_int(node.text)) return parsed;
  }
  constexpr double kExact = 9007199254740992.0;  // 2^53: whole numbers above are not exact
  const bool whole = node.kind == Kind::kFloat && std::nearbyint(node.real) == node.real &&
                     std::fabs(node.real) <= kExact;
  if (whole) return static_cast<int64_t>(node.real);
  return std::nullopt;
}

std::optional<double> as_float(const Node& node) {
  if (node.kind == Kind::kFloat) return node.real;
  if (node.kind == Kind::kInt) return static_cast<double>(node.integer);
  if (node.kind != Kind::kString) return std::nullopt;
  return python_float_from(node.text);
}

std::string not_convertible(const Node& value, std::string_view to, const std::string& fix) {
  return fmt::format("'{}' ({}) is not {}; {}", shown(python_str(value)), python_type(value), to,
                     fix);
}

std::string whole_number(const Range& range) {
  const std::string bounds = range.str();
  return bounds.empty() ? "give a whole number" : "give a whole number " + bounds;
}

std::string number_wanted(const Range& range) {
  const std::string bounds = range.str();
  return bounds.empty() ? "give a number" : "give a number " + bounds;
}

/// One overload per field type: assigns, or says what is wrong.
struct Assign {
  const Field& field;
  const Node& value;

  std::string operator()(int64_t* member) const {
    const auto parsed = as_int(value);
    if (!parsed) return not_convertible(value, "an integer", whole_number(field.range));
    if (!field.range.holds(static_cast<double>(*parsed)))
      return fmt::format("{} is out of range; {}", *parsed, whole_number(field.range));
    *member = *parsed;
    return "";
  }

  std::string operator()(std::optional<int64_t>* member) const {
    int64_t parsed = 0;
    if (value.kind == Kind::kNull) {
      member->reset();
      return "";
    }
    std::string problem = (*this)(&parsed);
    if (problem.empty()) *member = parsed;
    return problem;
  }

  std::string operator()(double* member) const {
    const auto parsed = as_float(value);
    if (!parsed) return not_convertible(value, "a number", number_wanted(field.range));
    if (!field.range.holds(*parsed))
      return fmt::format("{} is out of range; {}", python_float(*parsed),
                         number_wanted(field.range));
    *member = *parsed;
    return "";
  }

  std::string operator()(bool* member) const {
    const auto parsed = lenient_bool(value);
    if (!parsed)
      return fmt::format("'{}' ({}) is not a boolean; give true or false", shown(python_str(value)),
                         python_type(value));
    *member = *parsed;
    return "";
  }

  std::string operator()(std::string* member) const {
    if (value.is_container()) return not_convertible(value, "a string", "give a string");
    std::string text = python_str(value);
    if (text.empty()) return "is empty; give a string";
    if (text.find('\0') != std::string::npos) return "contains a NUL byte; remove it";
    *member = std::move(text);
    return "";
  }

  std::string operator()(Verbosity* member) const {
    Verbosity parsed;
    if (const auto all = lenient_bool(value)) {
      parsed.all = *all;
    } else if (value.kind == Kind::kString) {
      parsed.loggers.push_back(value.text);
    } else if (value.kind != Kind::kList) {
      return not_convertible(value, "a bool or a list of names", "give true or [trainer]");
    }
    for (const Node& item : value.items) {
      if (item.kind != Kind::kString)
        return not_convertible(item, "a string", "give logger names, e.g. [trainer]");
      parsed.loggers.push_back(item.text);
    }
    *member = std::move(parsed);
    return "";
  }

  std::string operator()(std::array<double, 2>* member) const {
    const std::string fix = fmt::format("give two numbers {}, e.g. [0.9, 0.95]", field.range.str());
    if (value.kind != Kind::kList || value.items.size() != 2)
      return not_convertible(value, "a list of 2 floats", fix);
    std::array<double, 2> parsed{};
    for (std::size_t i = 0; i < 2; ++i) {
      const auto item = as_float(value.items[i]);
      if (!item) return not_convertible(value.items[i], "a number", fix);
      if (!field.range.holds(*item))
        return fmt::format("{} is out of range; {}", python_float(*item), fix);
      parsed[i] = *item;
    }
    *member = parsed;
    return "";
  }

  std::string operator()(AutoNumber* member) const {
    AutoNumber parsed;
    if (value.kind == Kind::kString && value.text == "auto") {
      *member = parsed;
      return "";
    }
    parsed.automatic = false;
    if (!as_float(value))
      return not_convertible(value, "a number",
                             "give auto, or " + number_wanted(field.range).substr(5));
    std::string problem = (*this)(&parsed.value);
    if (problem.empty()) *member = parsed;
    return problem;
  }

  std::string operator()(std::vector<std::string>* member) const {
    if (value.kind != Kind::kList)
      return not_convertible(value, "a list of strings", "give a list, e.g. [\"...\"]");
    std::vector<std::string> parsed;
    for (const Node& item : value.items) {
      if (item.kind != Kind::kString) return not_convertible(item, "a string", "give a string");
      parsed.push_back(item.text);
    }
    *member = std::move(parsed);
    return "";
  }

  template <class E>
  requires std::is_enum_v<E> std::string operator()(E* member) const {
    const std::string text = python_str(value);
    for (const auto& choice : choices(member)) {
      if (value.kind == Kind::kString && choice.name == text) {
        *member = choice.value;
        return "";
      }
    }
    const std::string near = nearest(text, choice_names<E>());
    return fmt::format("'{}' is not one of {}; {}", shown(text),
                       fmt::join(choice_names<E>(), " | "),
                       near.empty() ? "choose one" : "did you mean '" + near + "'?");
  }
};

struct Read {
  Node operator()(const int64_t* member) const { return Node::of(*member); }
  Node operator()(const std::optional<int64_t>* member) const {
    return *member ? Node::of(**member) : Node::null();
  }
  Node operator()(const double* member) const { return Node::of(*member); }
  Node operator()(const bool* member) const { return Node::of(*member); }
  Node operator()(const std::string* member) const {
    return member->empty() ? Node::null() : Node::of(*member);
  }
  Node operator()(const Verbosity* member) const {
    return member->loggers.empty() ? Node::of(member->all) : Node::texts(member->loggers);
  }
  Node operator()(const AutoNumber* member) const {
    if (member->automatic) return Node::of(std::string("auto"));
    return Node::of(member->value);
  }
  Node operator()(const std::vector<std::string>* member) const { return Node::texts(*member); }
  Node operator()(const std::array<double, 2>* member) const {
    Node node = Node::list();
    for (const double item : *member) node.items.push_back(Node::of(item));
    return node;
  }
  template <class E>
  requires std::is_enum_v<E> Node operator()(const E* member) const {
    for (const auto& choice : choices(member)) {
      if (choice.value == *member) return Node::of(std::string(choice.name));
    }
    return Node::null();
  }
};

struct TypeName {
  std::string operator()(const int64_t*) const { return "int"; }
  std::string operator()(const std::optional<int64_t>*) const { return "int or null"; }
  std::string operator()(const double*) const { return "float"; }
  std::string operator()(const bool*) const { return "bool"; }
  std::string operator()(const std::string*) const { return "str"; }
  std::string operator()(const Verbosity*) const { return "bool or list of str"; }
  std::string operator()(const std::array<double, 2>*) const { return "list of 2 floats"; }
  std::string operator()(const AutoNumber*) const { return "auto or float"; }
  std::string operator()(const std::vector<std::string>*) const { return "list of str"; }
  template <class E>
  requires std::is_enum_v<E> std::string operator()(const E*) const {
    return fmt::format("{}", fmt::join(choice_names<E>(), " | "));
  }
};

std::string assign_null(const Field& field, Config& config) {
  if (field.null_means == NullMeans::kNotGiven) return "";
  if (field.null_means == NullMeans::kError) return "cannot be null; give a value or omit the key";
  std::visit([](auto* member) { *member = {}; }, field.member(config));
  const FieldPointer member = field.member(config);
  if (auto* const* number = std::get_if<AutoNumber*>(&member)) (*number)->automatic = false;
  return "";
}

}  // namespace

bool Range::holds(double value) const {
  if (!std::isfinite(value)) return false;
  const bool above = low_open ? value > low : value >= low;
  const bool below = high_open ? value < high : value <= high;
  return above && below;
}

std::string Range::str() const {
  std::string out;
  if (std::isfinite(low)) out = fmt::format("{} {}", low_open ? ">" : ">=", low);
  if (std::isfinite(high))
    out += fmt::format("{}{} {}", out.empty() ? "" : " and ", high_open ? "<" : "<=", high);
  return out;
}

std::string field_type(const Field& field) {
  Config config;
  return std::visit(TypeName{}, field.member(config));
}

std::string field_default(const Field& field) {
  if (!field.default_text.empty()) return field.default_text;
  const Node value = field_value(field, Config{});
  if (value.kind == Kind::kNull) return "null";
  if (value.kind == Kind::kBool) return value.boolean ? "true" : "false";
  if (value.kind == Kind::kFloat && value.real == std::nearbyint(value.real))
    return fmt::format("{}", value.real);
  return python_str(value);
}

Node field_value(const Field& field, const Config& config) {
  // The list of fields needs one kind of accessor only; nothing is written through it here.
  return std::visit(Read{}, field.member(const_cast<Config&>(config)));
}

std::string assign_field(const Field& field, const Node& value, Config& config) {
  const FieldPointer member = field.member(config);
  const bool optional = std::holds_alternative<std::optional<int64_t>*>(member);
  if (value.kind == Kind::kNull && !optional) return assign_null(field, config);
  return std::visit(Assign{field, value}, member);
}

}  // namespace ddp::train
