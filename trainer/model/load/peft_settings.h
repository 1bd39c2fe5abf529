// Settings of adapters that peft has written: adapter_config.json.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "trainer/config/adapter_config.h"
#include "trainer/config/keys/config_checks.h"

namespace ddp::train {

/// Makes lora.init_from absolute, and gives keys of `lora` that are not given the values of the
/// folder there. Throws UserError: no such folder, other values than the given ones, or adapters
/// that this trainer does not compute, each by its key in the file. `has_classifier`: whether the
/// model has layers that are trained whole next to adapters.
void follow_peft_settings(LoraConfig& lora, const Given& given, bool has_classifier);

/// adapter_config.json of `folder`. Throws UserError: no such file, with the way to get one.
nlohmann::json read_adapter_config(const std::string& folder);

/// Throws UserError if an adapter_config.json has modules_to_save, whose weights would be lost.
void refuse_saved_modules(const nlohmann::json& config);

/// Throws UserError if the adapters of `folder` have rows of other tokens than the last `count` of
/// `vocab_size`, in their order.
void check_rows_of_tokens(const std::string& folder, int64_t count, int64_t vocab_size);

}  // namespace ddp::train
