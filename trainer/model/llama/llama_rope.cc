#include "trainer/model/llama/llama_rope.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "trainer/config/keys/key_rows.h"
#include "trainer/model/llama/llama_pretrained.h"
#include "trainer/model/load/pretrained_json.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/log/message.h"

namespace ddp::train {
namespace {

/// An empty one if it is absent or null.
nlohmann::json object_in(const nlohmann::json& config, const char* key, const std::string& file) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return nlohmann::json::object();
  if (found->is_object()) return *found;
  throw UserError(
      fmt::format("{}: {} is {}; {}", file, key, shown(found->dump()), kHowToMakePretrained));
}

/// As transformers 5 joins them: rope_scaling in place of rope_parameters, but Gemma 3's, which are
/// for each kind of layer, are updated by it.
nlohmann::json joined_rope(const nlohmann::json& config, const LlamaType& type,
                           const std::string& file) {
  const nlohmann::json scaling = object_in(config, "rope_scaling", file);
  const nlohmann::json parameters = object_in(config, "rope_parameters", file);
  if (!type.has_local_rope) return scaling.empty() ? parameters : scaling;
  nlohmann::json full = parameters.empty() ? nlohmann::json{{"rope_type", "default"}}
                                           : object_in(parameters, "full_attention", file);
  full.update(scaling);
  return full;
}

/// Without these transformers does not build the model.
void check_is_complete(const RopeScaling& scaling, const PretrainedValues& values,
                       const std::string& file) {
  std::vector<const char*> needed = {"factor"};
  if (scaling.rope_type == "llama3") needed = {"factor", "low_freq_factor", "high_freq_factor"};
  if (scaling.rope_type == "yarn") needed.clear();
  for (const char* key : needed) {
    if (values.has(key)) continue;
    throw UserError(fmt::format("{}: rope_scaling of rope_type {} has no {}; {}", file,
                                scaling.rope_type, key, kHowToMakePretrained));
  }
}

/// DeepSeek's mscale and mscale_all_dim become the attention_factor that they mean.
void read_yarn(RopeScaling& scaling, const PretrainedValues& values, int64_t positions) {
  if (!values.has("factor"))
    scaling.factor = static_cast<double>(positions) /
                     static_cast<double>(scaling.original_max_position_embeddings);
  const double log_factor = std::log(std::max(1.0, scaling.factor));
  const double mscale = values.real("mscale", 0.0, kAnyValue);
  const double of_all = values.real("mscale_all_dim", 0.0, kAnyValue);
  const bool both = mscale != 0.0 && of_all != 0.0;
  scaling.attention_factor =
      values.real("attention_factor",
                  both ? (0.1 * mscale * log_factor + 1) / (0.1 * of_all * log_factor + 1)
                       : scaling.attention_factor,
                  kAtLeast0);
  scaling.beta_fast = values.real("beta_fast", scaling.beta_fast, kAbove0);
  scaling.beta_slow = values.real("beta_slow", scaling.beta_slow, kAbove0);
}

void read_scaling(RopeScaling& scaling, const nlohmann::json& rope, const PretrainedValues& beside,
                  const std::string& file, int64_t positions) {
  const PretrainedValues values(rope, file);
  scaling.rope_type = values.text("rope_type", values.text("type", scaling.rope_type));
  if (scaling.rope_type == "default" || !is_rope_type(scaling.rope_type)) return;
  check_is_complete(scaling, values, file);
  scaling.factor = values.real("factor", scaling.factor, kAbove0);
  if (scaling.rope_type == "dynamic") scaling.original_max_position_embeddings = positions;
  if (scaling.rope_type != "llama3" && scaling.rope_type != "yarn") return;
  constexpr const char* kOriginal = "original_max_position_embeddings";
  scaling.original_max_position_embeddings =
      beside.number(kOriginal, values.number(kOriginal, positions, kMostPositions), kMostPositions);
  scaling.low_freq_factor = values.real("low_freq_factor", scaling.low_freq_factor, kAbove0);
  scaling.high_freq_factor = values.real("high_freq_factor", scaling.high_freq_factor, kAbove0);
  if (scaling.rope_type == "yarn") read_yarn(scaling, values, positions);
}

/// The base of layers with a window.
void read_local_rope(LlamaShape& shape, const nlohmann::json& config, const std::string& file,
                     std::vector<std::string>& unsupported) {
  const nlohmann::json local =
      object_in(object_in(config, "rope_parameters", file), "sliding_attention", file);
  const PretrainedValues values(local, file);
  const double beside = PretrainedValues(config, file)
                            .real("rope_local_base_freq", shape.rope_local_base_freq, kAbove0);
  shape.rope_local_base_freq = values.real("rope_theta", beside, kAbove0);
  if (const auto kind = values.text("rope_type", "default"); kind != "default")
    unsupported.push_back(
        fmt::format("rope_parameters.sliding_attention.rope_type is {}, not default", shown(kind)));
}

}  // namespace

void read_rope(LlamaShape& shape, const nlohmann::json& config, const LlamaType& type,
               const std::string& file, int64_t positions, std::vector<std::string>& unsupported) {
  const PretrainedValues beside(config, file);
  const nlohmann::json rope = joined_rope(config, type, file);
  const PretrainedValues values(rope, file);
  shape.rope_theta =
      values.real("rope_theta", beside.real("rope_theta", shape.rope_theta, kAbove0), kAbove0);
  const double share = values.real("partial_rotary_factor",
                                   beside.real("partial_rotary_factor", 1.0, kShare), kShare);
  if (type.has_partial_rotary)
    shape.partial_rotary_factor = share;
  else if (share != 1.0)
    unsupported.emplace_back("partial_rotary_factor is not 1");
  if (type.has_local_rope) read_local_rope(shape, config, file, unsupported);
  read_scaling(shape.rope_scaling, rope, beside, file, positions);
  const std::string& rope_type = shape.rope_scaling.rope_type;
  if (rope_type != "default" && !(type.scales_rope && is_rope_type(rope_type)))
    unsupported.push_back(fmt::format("rope_scaling.rope_type is {}, not {}", shown(rope_type),
                                      type.scales_rope
                                          ? fmt::format("{}", fmt::join(kRopeTypes, ", "))
                                          : std::string("default")));
  if (!values.flag("truncate", true))
    unsupported.emplace_back("rope_scaling.truncate is false, not true");
}

nlohmann::ordered_json rope_scaling_json(const RopeScaling& scaling) {
  if (scaling.rope_type == "default") return nullptr;
  nlohmann::ordered_json json = {{"rope_type", scaling.rope_type}, {"factor", scaling.factor}};
  if (scaling.rope_type == "llama3") {
    json["low_freq_factor"] = scaling.low_freq_factor;
    json["high_freq_factor"] = scaling.high_freq_factor;
  }
  if (scaling.rope_type == "yarn") {
    if (scaling.attention_factor > 0) json["attention_factor"] = scaling.attention_factor;
    json["beta_fast"] = scaling.beta_fast;
    json["beta_slow"] = scaling.beta_slow;
  }
  if (json.size() > 2)
    json["original_max_position_embeddings"] = scaling.original_max_position_embeddings;
  return json;
}

}  // namespace ddp::train
