#include "trainer/config/keys/key_table.h"

#include <algorithm>
#include <utility>

#include "trainer/config/keys/key_rows.h"

namespace ddp::train {

const std::vector<Field>& config_fields() {
  static const std::vector<Field> fields = [] {
    std::vector<Field> all = {{DDP_KEY_AT("task", task), .meaning = "What to train."}};
    const auto add = [&all](std::vector<Field> section, const std::vector<TaskKind>& tasks = {}) {
      for (Field& field : section) {
        if (field.tasks.empty()) field.tasks = tasks;
        all.push_back(std::move(field));
      }
    };
    add(data_fields());
    add(gpt_fields(), {TaskKind::kCausalLm});
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

bool belongs_to(const Field& field, TaskKind task) {
  const auto& tasks = field.tasks;
  return tasks.empty() || std::find(tasks.begin(), tasks.end(), task) != tasks.end();
}

}  // namespace ddp::train
