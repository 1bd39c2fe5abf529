#include "trainer/model/prompt_tuning.h"

#include <fmt/format.h>

#include "trainer/config/config.h"
#include "trainer/hydra/compose/folders.h"
#include "trainer/model/causal_architecture.h"
#include "trainer/model/load/peft_settings.h"
#include "trainer/model/load/pretrained_json.h"
#include "trainer/model/lora.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/hub_name.h"

namespace ddp::train {
namespace {

int64_t tokens_in_folder(const std::string& folder, bool has_classifier) {
  constexpr int64_t kMostTokens = 1'000'000;
  const std::string file = folder + "/adapter_config.json";
  const auto json = read_adapter_config(folder);
  const PretrainedValues values(json, file);
  const std::string type = values.text("peft_type", "");
  if (type != "PROMPT_TUNING") {
    throw UserError(fmt::format(
        "{}: peft_type is '{}', not PROMPT_TUNING; give the folder of a prompt", file, type));
  }
  if (!has_classifier) refuse_saved_modules(json);
  return values.number("num_virtual_tokens", 0, kMostTokens);
}

void follow_prompt(PromptConfig& prompt, const Given& given, bool has_classifier) {
  const char* const key = "prompt_tuning.init_from";
  if (!prompt.text.empty()) given.refuse(key, "conflicts with prompt_tuning.text; keep one");
  if (const std::string fix = how_to_fetch_model(prompt.init_from); !fix.empty())
    given.refuse(key, fix);
  prompt.init_from = absolute_path(prompt.init_from);
  int64_t there = 0;
  try {
    there = tokens_in_folder(prompt.init_from, has_classifier);
  } catch (const UserError& error) {
    given.refuse(key, error.what());
  }
  if (given.has("prompt_tuning.tokens") && prompt.tokens != there) {
    given.refuse("prompt_tuning.tokens", fmt::format("{}, and {} has {}; remove it", prompt.tokens,
                                                     prompt.init_from, there));
  }
  prompt.tokens = there;
}

}  // namespace

void complete_prompt_tuning(Config& config, const Given& given) {
  PromptConfig& prompt = config.prompt_tuning;
  if (!prompt.init_from.empty())
    follow_prompt(prompt, given, config.task == TaskKind::kTextClassification);
  const char* const key = "prompt_tuning.tokens";
  if (!prompt.enabled()) {
    if (!prompt.text.empty())
      given.refuse("prompt_tuning.text",
                   "has no effect without prompt_tuning.tokens; set it, e.g. to 20");
    return;
  }
  if (config.lora.enabled())
    given.refuse(key, "conflicts with lora.rank; keep one (~lora takes its section out)");
  if (config.task == TaskKind::kPreference)
    given.refuse(key, "virtual tokens do not learn from pairs (task=preference); use lora.rank");
  const ModelBelow below = model_below(config);
  if (trains_causal_lm(config.task) && causal_architecture(config).lora_targets().empty())
    given.refuse(key, below.described + " takes no virtual tokens; remove it");
  if (!below.path.empty()) return;
  given.refuse(key, fmt::format("virtual tokens need a pretrained model; set {} to its folder or "
                                "snapshot",
                                below.key));
}

}  // namespace ddp::train
