// The list of all configuration keys: name, type, default, range, unit and meaning appear once, in
// the *_keys.cc; parsing, checks, output, help and documentation are derived from it.
#pragma once

#include <array>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/hydra/yaml/tree.h"

namespace ddp::train {

/// The member of Config that holds a field's value; the pointer's type is the field's type.
using FieldPointer =
    std::variant<int64_t*, std::optional<int64_t>*, double*, bool*, std::string*,
                 std::array<double, 2>*, Verbosity*, AutoNumber*, ClassWeights*,
                 std::vector<std::string>*, TaskKind*, DataFormat*, LossOn*, OnBadSample*,
                 ImageNetworkKind*, BatchNormKind*, BaseFormat*, Activation*, AmpDtype*,
                 DeviceChoice*, IfBusy*, AutoSwitch*, BadStepPolicy*, Strategy*, Offload*, Backend*,
                 GradientCompression*, PipelineSchedule*, OptimizerName*, LrSchedule*,
                 ProgressStyle*, WandbMode*, std::vector<ParamGroup>*, std::vector<WeightedSource>*,
                 std::vector<NamedSet>*, StateBits*, PreferenceLoss*, BertFamily*, ProblemType*>;

/// The names of an enumeration's values, aliases by their own.
template <class E>
std::vector<std::string> choice_names() {
  std::vector<std::string> names;
  for (const std::string_view name : names_of(E{}))
    names.emplace_back(name.substr(0, name.find('=')));
  return names;
}

/// The values a number may have; open ends exclude the bound itself.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false;
  bool high_open = false;

  bool holds(double value) const;
  /// ">= 1", "> 0 and <= 1", "" for any number.
  std::string str() const;
};

/// What `null` means for a field that is not an optional number.
enum class NullMeans { kError, kOff, kNotGiven };

struct Field {
  std::string path;  ///< "trainer_config.batch_size"
  FieldPointer (*member)(Config&);
  Range range = {};
  bool whole = false;  ///< For a number that may be auto: no fraction.
  std::string unit = {};
  NullMeans null_means = NullMeans::kError;
  std::string default_text = {};     ///< Empty: the struct's own default.
  std::string word_for_all = {};     ///< For a list of patterns: what also means ["*"].
  std::vector<TaskKind> tasks = {};  ///< The tasks that use the key; empty: all.
  std::string model = {};            ///< Likewise, the model of a causal_lm; empty: all.
  std::string meaning;
};

const std::vector<Field>& config_fields();

/// Adds the keys of a model with a section of its own. Call it at the start of the program, before
/// config_fields(): throws std::logic_error afterwards.
void add_config_fields(const std::vector<Field>& fields);

/// Returns the field of that path, or nullptr.
const Field* find_field(std::string_view path);

/// Whether the task of `config`, and its model, use the key.
bool belongs_to(const Field& field, const Config& config);

/// "int", "float", "bool", "str", "auto or float", "balanced or list of floats", "list of 2
/// floats", "list of str", "list of groups", "list of sources", "map of paths" or the choices of an
/// enumeration.
std::string field_type(const Field& field);

/// The names of an enumeration's values; none of any other type.
std::vector<std::string> field_choices(const Field& field);

/// As documented: "216", "none", "required".
std::string field_default(const Field& field);

/// Returns the current value, typed.
Node current_value(const Field& field, const Config& config);

/// Converts and checks the range. Returns "" or the problem and its fix ("<what>; <fix>").
std::string assign_field(const Field& field, const Node& value, Config& config);

}  // namespace ddp::train
