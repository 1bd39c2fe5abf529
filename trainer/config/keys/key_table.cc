#include "trainer/config/keys/key_table.h"

#include <algorithm>

#include "trainer/config/keys/key_rows.h"

namespace ddp::train {

std::vector<Field> for_tasks(const std::vector<TaskKind>& tasks, std::vector<Field> fields) {
  for (Field& field : fields) {
    if (field.tasks.empty()) field.tasks = tasks;
  }
  return fields;
}

const std::vector<Field>& config_fields() {
  static const std::vector<Field> fields = [] {
    std::vector<Field> all = {{DDP_KEY_AT("task", task), .meaning = "What to train."}};
    for (const auto& part : {data_fields(), gpt_fields(), bert_fields(), image_fields(),
                             trainer_fields(), optimizer_fields(), distributed_fields(),
                             logging_fields(), profile_fields(), hydra_fields()}) {
      all.insert(all.end(), part.begin(), part.end());
    }
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
