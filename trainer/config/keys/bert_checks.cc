#include "trainer/config/keys/bert_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "trainer/config/keys/key_table.h"
#include "trainer/config/keys/pretrained_config.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/message.h"

namespace ddp::train {
namespace {

constexpr int64_t kWidenedBy = 4;  // intermediate by n_embd, in every BERT of the authors
constexpr const char* kBertSizes[] = {"bert_config.n_layer", "bert_config.n_head",
                                      "bert_config.n_embd"};

[[noreturn]] void refuse_bert(const Given& given, const std::string& key, const std::string& what) {
  throw UserError(given.where(key) + ": " + what);
}

/// Whether they are given, and then all.
bool sizes_are_given(const BertConfig& bert, const Given& given) {
  std::vector<std::string> present;
  std::vector<std::string> absent;
  for (const char* key : kBertSizes) (given.has(key) ? present : absent).emplace_back(key);
  if (present.empty()) return false;
  if (given.has("bert_config.model_type")) {
    refuse_bert(
        given, present.front(),
        fmt::format("conflicts with bert_config.model_type={}; keep either the preset or the "
                    "sizes",
                    bert.model_type));
  }
  if (!absent.empty()) {
    refuse_bert(given, present.front(),
                fmt::format("{} {} missing; set n_layer, n_head and n_embd together, or model_type "
                            "instead",
                            fmt::join(absent, ", "), absent.size() == 1 ? "is" : "are"));
  }
  return true;
}

const ModelPreset& find_bert_preset(const std::string& name, const Given& given) {
  std::vector<std::string> names;
  for (const ModelPreset& preset : bert_presets()) {
    if (preset.name == name) return preset;
    names.emplace_back(preset.name);
  }
  refuse_bert(given, "bert_config.model_type",
              fmt::format("'{}' is not one of {}; {}", name, fmt::join(names, ", "),
                          did_you_mean(name, names, "choose one")));
}

void take_preset(BertConfig& bert, const Given& given) {
  if (bert.model_type.empty()) bert.model_type = "bert-tiny";
  const ModelPreset& preset = find_bert_preset(bert.model_type, given);
  bert.n_layer = preset.n_layer;
  bert.n_head = preset.n_head;
  bert.n_embd = preset.n_embd;
}

/// What is not given follows the folder; everything else must agree with it.
void follow_pretrained_bert(Config& config, bool sizes_given, const Given& given) {
  BertConfig& bert = config.bert;
  try {
    const PretrainedBert there = read_pretrained_bert(absolute_path(bert.init_from));
    if (!sizes_given && bert.model_type.empty()) {
      bert.n_layer = there.n_layer;
      bert.n_head = there.n_head;
      bert.n_embd = there.n_embd;
      if (bert.intermediate == 0) bert.intermediate = there.intermediate;
    }
    if (bert.intermediate == 0) bert.intermediate = kWidenedBy * bert.n_embd;
    const auto differences = differences_from(there, bert, config.data.block_size);
    if (differences.empty()) return;
    throw UserError(
        fmt::format("{}: does not fit: {}", bert.init_from, fmt::join(differences, "; ")));
  } catch (const UserError& error) {
    refuse_bert(given, "bert_config.init_from", error.what());
  }
}

void check_bert_heads(const BertConfig& bert, const Given& given) {
  if (bert.n_embd % bert.n_head == 0) return;
  refuse_bert(
      given, "bert_config.n_embd",
      fmt::format("{} is not divisible by bert_config.n_head={}; the nearest widths are {} and {}",
                  bert.n_embd, bert.n_head,
                  std::max(bert.n_head, bert.n_embd / bert.n_head * bert.n_head),
                  (bert.n_embd / bert.n_head + 1) * bert.n_head));
}

}  // namespace

void complete_bert(Config& config, const Given& given) {
  constexpr int64_t kShortest = 3;  // [CLS], a token, [SEP]
  BertConfig& bert = config.bert;
  const bool sizes_given = sizes_are_given(bert, given);
  const bool by_name = !bert.model_type.empty() || bert.init_from.empty();
  if (!sizes_given && by_name) take_preset(bert, given);
  if (!bert.init_from.empty()) follow_pretrained_bert(config, sizes_given, given);
  if (bert.intermediate == 0) bert.intermediate = kWidenedBy * bert.n_embd;
  check_bert_heads(bert, given);
  if (config.data.block_size < kShortest) {
    refuse_bert(given, "data_config.block_size",
                fmt::format("{} holds no token between [CLS] and [SEP]; set 3 at least",
                            config.data.block_size));
  }
}

}  // namespace ddp::train
