#include "trainer/config/keys/key_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "trainer/config/keys/key_rows.h"

namespace ddp::train {
namespace {

/// Keys of models with a section of their own.
struct AddedFields {
  std::vector<Field> fields;
  bool closed = false;  ///< config_fields() has been built.
};
AddedFields& added_fields() {
  static AddedFields added;
  return added;
}

struct TypeName {
  std::string operator()(const int64_t*) const { return "int"; }
  std::string operator()(const std::optional<int64_t>*) const { return "int or null"; }
  std::string operator()(const double*) const { return "float"; }
  std::string operator()(const bool*) const { return "bool"; }
  std::string operator()(const std::string*) const { return "str"; }
  std::string operator()(const Verbosity*) const { return "bool or list of str"; }
  std::string operator()(const std::array<double, 2>*) const { return "list of 2 floats"; }
  std::string operator()(const AutoNumber*) const { return "auto or float"; }
  std::string operator()(const ClassWeights*) const { return "balanced or list of floats"; }
  std::string operator()(const std::vector<std::string>*) const { return "list of str"; }
  std::string operator()(const std::vector<ParamGroup>*) const { return "list of groups"; }
  std::string operator()(const std::vector<WeightedSource>*) const { return "list of sources"; }
  std::string operator()(const std::vector<NamedSet>*) const { return "map of paths"; }
  template <class E>
  requires std::is_enum_v<E> std::string operator()(const E*) const {
    return fmt::format("{}", fmt::join(choice_names<E>(), " | "));
  }
};

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

void add_config_fields(const std::vector<Field>& fields) {
  AddedFields& added = added_fields();
  if (added.closed) throw std::logic_error("keys were added after the first use of the key table");
  added.fields.insert(added.fields.end(), fields.begin(), fields.end());
}

const std::vector<Field>& config_fields() {
  static const std::vector<Field> fields = [] {
    std::vector<Field> all = {{DDP_KEY_AT("task", task), .meaning = "What to train."},
                              {DDP_KEY_AT("model", model), .tasks = kCausalTasks,
                               .meaning = "Architecture of the language model: gpt or llama."},
                              {DDP_KEY_AT("init_from", init_from),
                               .null_means = NullMeans::kNotGiven, .tasks = kTextTasks,
                               .meaning = "Pretrained model to start from: a folder as saved by "
                                          "transformers, or a snapshot. task, model, that "
                                          "model's own init_from and the tokenizer follow from "
                                          "it."}};
    const auto add = [&all](std::vector<Field> section, const std::vector<TaskKind>& tasks = {},
                            const std::string& model = "") {
      for (Field& field : section) {
        if (field.tasks.empty()) field.tasks = tasks;
        if (field.model.empty()) field.model = model;
        all.push_back(std::move(field));
      }
    };
    add(data_fields());
    add(gpt_fields(), kCausalTasks, "gpt");
    added_fields().closed = true;
    add(added_fields().fields, kCausalTasks);
    add(lora_fields(), kTextTasks);
    add(prompt_fields(),
        {TaskKind::kCausalLm, TaskKind::kPreference, TaskKind::kTextClassification});
    add(preference_fields(), {TaskKind::kPreference});
    add(bert_fields(), {TaskKind::kMaskedLm, TaskKind::kTextClassification});
    add(image_fields(), {TaskKind::kImageClassification});
    add(trainer_fields());
    add(optimizer_fields());
    add(distributed_fields());
    add(logging_fields());
    add(metrics_fields());
    add(profile_fields());
    add(hydra_fields());
    return all;
  }();
  return fields;
}

const Field* find_field(std::string_view path) {
  for (const Field& field : config_fields()) {
    if (field.path == path) return &field;
  }
  return nullptr;
}

bool belongs_to(const Field& field, const Config& config) {
  const auto& tasks = field.tasks;
  const bool of_task =
      tasks.empty() || std::find(tasks.begin(), tasks.end(), config.task) != tasks.end();
  return of_task && (field.model.empty() || field.model == config.model);
}

std::string field_type(const Field& field) {
  Config config;
  return std::visit(TypeName{}, field.member(config));
}

std::vector<std::string> field_choices(const Field& field) {
  Config config;
  return std::visit(
      [](auto* member) {
        using Type = std::remove_pointer_t<decltype(member)>;
        if constexpr (std::is_enum_v<Type>) return choice_names<Type>();
        return std::vector<std::string>();
      },
      field.member(config));
}

std::string field_default(const Field& field) {
  if (!field.default_text.empty()) return field.default_text;
  const Node value = current_value(field, Config{});
  if (value.kind == Kind::kNull) return "null";
  if (value.kind == Kind::kBool) return value.boolean ? "true" : "false";
  if (value.kind == Kind::kFloat && value.real == std::nearbyint(value.real))
    return fmt::format("{}", value.real);
  return python_str(value);
}

}  // namespace ddp::train
