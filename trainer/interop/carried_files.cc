#include "trainer/interop/export_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "trainer/data/chat/chat_template_file.h"
#include "trainer/model/causal_architecture.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/foreign_json.h"

namespace ddp::train {
namespace {

using CarriedJson = nlohmann::ordered_json;

constexpr const char* kModelFile = "config.json";
constexpr const char* kGenerationFile = "generation_config.json";
constexpr const char* kTokenizerFile = "tokenizer_config.json";
constexpr const char* kSpecialIds[] = {"bos_token_id", "eos_token_id", "pad_token_id"};

CarriedJson carried_json(const TextFiles& files, const std::string& name) {
  const auto text = files.find(name);
  return text == files.end() ? CarriedJson::object()
                             : parse_bounded_ordered_json(text->second, name);
}

std::string carried_text(const CarriedJson& json) { return json.dump(2) + "\n"; }

void check_base_sizes(const CarriedJson& theirs, const CarriedJson& own,
                      const std::string& folder) {
  for (const char* key : {"model_type", "hidden_size", "num_hidden_layers", "num_attention_heads",
                          "num_key_value_heads", "intermediate_size", "n_embd", "n_layer", "n_head",
                          "n_layers", "n_heads", "dim", "hidden_dim"}) {
    if (!theirs.contains(key) || theirs[key].is_null() || !own.contains(key) ||
        theirs[key] == own[key])
      continue;
    throw UserError(fmt::format(
        "export: {}/config.json: {} is {} there, {} in the snapshot; put the model that the run "
        "started from there, or name its folder with --base",
        folder, key, theirs[key].dump(), own[key].dump()));
  }
}

/// The ids of `own` in place of those of another vocabulary.
void replace_ids(CarriedJson& theirs, const CarriedJson& own) {
  for (const char* key : kSpecialIds) {
    theirs.erase(key);
    if (own.contains(key)) theirs[key] = own[key];
  }
}

CarriedJson carried_config(CarriedJson theirs, const CarriedJson& own, const ExportedModel& model) {
  constexpr const char* kContext = "max_position_embeddings";
  for (const char* key : {"architectures", "vocab_size", "n_positions", "n_ctx", "id2label",
                          "label2id", "problem_type", "tie_word_embeddings"}) {
    if (own.contains(key)) theirs[key] = own[key];
  }
  if (own.contains(kContext) && theirs.contains(kContext)) {
    const bool longer = own[kContext] > theirs[kContext];
    if (longer || has_position_table(model.config)) theirs[kContext] = own[kContext];
  }
  if (!model.base->same_tokenizer) replace_ids(theirs, own);
  theirs.erase("quantization_config");  // of the base's weights
  return theirs;
}

/// Reports an exported position table that is shorter than the base's.
void note_fewer_positions(const CarriedJson& theirs, const CarriedJson& config,
                          const std::string& folder) {
  for (const char* key : {"n_positions", "max_position_embeddings"}) {
    if (!config.contains(key) || !theirs.contains(key) || config[key] >= theirs[key]) continue;
    fmt::print(stderr, "note: export: {} is {} (the run's data_config.block_size); {} has {}\n",
               key, config[key].dump(), folder, theirs[key].dump());
  }
}

/// Adds the end of turn that a run on chats has taught. Returns whether it was missing.
bool add_end_of_turn(CarriedJson& ends, const ExportedModel& model) {
  if (!model.chat || !model.chat->end_of_turn || model.config.data.format != DataFormat::kChat)
    return false;
  if (!ends.is_array()) ends = ends.is_null() ? CarriedJson::array() : CarriedJson::array({ends});
  if (std::find(ends.begin(), ends.end(), *model.chat->end_of_turn) != ends.end()) return false;
  ends.push_back(*model.chat->end_of_turn);
  return true;
}

/// Without a file of the base, transformers takes the ids of config.json.
void carry_generation(TextFiles& files, const CarriedJson& theirs_config,
                      const ExportedModel& model) {
  const CarriedJson own = carried_json(files, kGenerationFile);
  CarriedJson theirs = carried_json(model.base->texts, kGenerationFile);
  const bool there = model.base->texts.contains(kGenerationFile);
  if (!model.base->same_tokenizer) {
    replace_ids(theirs, own);
    files[kGenerationFile] = carried_text(theirs);
    return;
  }
  if (!there) {
    for (const char* key : kSpecialIds) {
      if (theirs_config.contains(key)) theirs[key] = theirs_config[key];
    }
  }
  CarriedJson ends =
      theirs.value("eos_token_id", theirs_config.value("eos_token_id", CarriedJson()));
  if (add_end_of_turn(ends, model)) {
    theirs["eos_token_id"] = ends;
    files[kGenerationFile] = carried_text(theirs);
  } else if (there) {
    files[kGenerationFile] = model.base->texts.at(kGenerationFile);
  } else {
    files.erase(kGenerationFile);
  }
}

/// The template of the run and its special tokens, in the files that the base has for them.
void put_template(TextFiles& files, const ChatFacts& chat) {
  for (const char* name : {kTokenizerFile, "special_tokens_map.json"}) {
    if (!files.contains(name)) continue;
    CarriedJson config = carried_json(files, name);
    for (const auto& [token, text] : chat.special) config[token] = text;
    if (name == kTokenizerFile) config["chat_template"] = chat.source;
    files[name] = carried_text(config);
  }
  files["chat_template.jinja"] = chat.source;
}

void limit_length(TextFiles& files, int64_t positions) {
  constexpr const char* kLength = "model_max_length";
  CarriedJson config = carried_json(files, kTokenizerFile);
  if (!config.contains(kLength) || config[kLength] <= positions) return;
  config[kLength] = positions;
  files[kTokenizerFile] = carried_text(config);
}

}  // namespace

bool has_position_table(const Config& config) {
  return config.task != TaskKind::kCausalLm ||
         causal_architecture(config).huggingface_layout()->positions != nullptr;
}

TextFiles with_base_tokenizer(TextFiles own, const ExportedModel& model) {
  if (!model.base || !model.base->same_tokenizer) return own;
  const auto theirs = chat_template_in(model.base->texts, model.base->folder);
  const bool same_template = !model.chat || (theirs && theirs->source == model.chat->source);
  if (same_template) own.erase("chat_template.jinja");
  for (const auto& [name, text] : model.base->texts) {
    if (name != kModelFile && name != kGenerationFile) own[name] = text;
  }
  if (!same_template) put_template(own, *model.chat);
  if (has_position_table(model.config)) limit_length(own, model.config.data.block_size);
  return own;
}

TextFiles with_base_config(TextFiles own, const ExportedModel& model) {
  if (!model.base || !model.base->texts.contains(kModelFile)) return own;
  const CarriedJson theirs = carried_json(model.base->texts, kModelFile);
  const CarriedJson own_config = carried_json(own, kModelFile);
  check_base_sizes(theirs, own_config, model.base->folder);
  const CarriedJson config = carried_config(theirs, own_config, model);
  note_fewer_positions(theirs, config, model.base->folder);
  own[kModelFile] = carried_text(config);
  if (model.config.task == TaskKind::kCausalLm) carry_generation(own, theirs, model);
  return own;
}

}  // namespace ddp::train
