#include "trainer/config/keys/key_table.h"

#include <algorithm>
#include <stdexcept>
#include <string>
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

}  // namespace

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
    add(prompt_fields(), kCausalTasks);
    add(preference_fields(), {TaskKind::kPreference});
    add(bert_fields(), {TaskKind::kMaskedLm, TaskKind::kTextClassification});
    add(image_fields(), {TaskKind::kImageClassification});
    add(trainer_fields());
    add(optimizer_fields());
    add(distributed_fields());
    add(logging_fields());
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

}  // namespace ddp::train
