// Helpers to write the rows of the key table, for the *_keys.cc files.
#pragma once

#include <limits>
#include <vector>

#include "trainer/config/keys/key_table.h"

/// The path and the member of a key: DDP_KEY(trainer, seed) is trainer_config.seed.
#define DDP_KEY(section, name)       \
  .path = #section "_config." #name, \
  .member = [](Config& c) -> FieldPointer { return &c.section.name; }
#define DDP_KEY_AT(key_path, key_member) \
  .path = (key_path), .member = [](Config& c) -> FieldPointer { return &c.key_member; }

/// For a model with a section of its own: DDP_MODEL_KEY(bigram, BigramConfig, width) is
/// bigram_config.width.
#define DDP_MODEL_KEY(model_name, Section, name) \
  .path = #model_name "_config." #name,          \
  .member = [](Config& c) -> FieldPointer { return &c.models.of<Section>().name; }

namespace ddp::train {

inline constexpr double kUnbounded = std::numeric_limits<double>::infinity();
inline constexpr Range kAnyValue{};
inline constexpr Range kAtLeast0{0, kUnbounded};
inline constexpr Range kUpTo1e4{1, 1e4};
inline constexpr Range kUpTo1e6{1, 1e6};
inline constexpr Range kUpTo1e9{1, 1e9};
inline constexpr Range kStepCount{1, 1e15};
inline constexpr Range kStepCountOr0{0, 1e15};
inline constexpr Range kAbove0{0, kUnbounded, true};
inline constexpr Range kShare{0, 1, true};               // above 0, up to 1
inline constexpr Range kProbability{0, 1, false, true};  // from 0, below 1

/// The tasks that train a causal language model.
inline const std::vector<TaskKind> kCausalTasks = {TaskKind::kCausalLm, TaskKind::kPreference};
/// The tasks on texts.
inline const std::vector<TaskKind> kTextTasks = {
    TaskKind::kCausalLm, TaskKind::kPreference, TaskKind::kMaskedLm, TaskKind::kTextClassification};

// The keys of each section, in the file named after its header.
std::vector<Field> data_fields();
std::vector<Field> gpt_fields();
std::vector<Field> bert_fields();
std::vector<Field> image_fields();
std::vector<Field> lora_fields();
std::vector<Field> preference_fields();
std::vector<Field> prompt_fields();
std::vector<Field> trainer_fields();
std::vector<Field> optimizer_fields();
std::vector<Field> distributed_fields();
std::vector<Field> logging_fields();
std::vector<Field> metrics_fields();
std::vector<Field> profile_fields();
std::vector<Field> hydra_fields();

}  // namespace ddp::train
