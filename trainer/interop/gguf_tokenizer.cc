// The tokenizer in a GGUF file: byte-level BPE is "gpt2" there, BPE over characters "llama".
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "trainer/interop/export_parts.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/foreign_json.h"
#include "trainer/tokenizer/bpe/bpe_file.h"

namespace ddp::train {
namespace {

using Json = nlohmann::json;

/// llama.cpp's numbers of the kinds of tokens.
enum TokenKind : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

constexpr float kScoreOfOthers = -1000.0F;
constexpr std::string_view kWordMark = "\u2581";

[[noreturn]] void refuse_tokenizer(const std::string& why) {
  throw UserError(
      fmt::format("--format gguf: {}; use --format huggingface, or train with another "
                  "data_config.tokenizer",
                  why));
}

/// The name of llama.cpp's pre-tokenizer that splits texts into the same words.
std::string word_splitter_of(const BpeSpec& spec) {
  using Stages = std::vector<WordStage>;
  const Stages& words = spec.words;
  const std::string name = words == Stages{WordStage::kGpt2}                      ? "gpt-2"
                           : words == Stages{WordStage::kDigit, WordStage::kGpt2} ? "smollm"
                           : words == Stages{WordStage::kQwen}                    ? "qwen2"
                           : words != Stages{WordStage::kLlama}                   ? ""
                           : spec.ignore_merges                                   ? "llama-bpe"
                                                                                  : "smaug-bpe";
  if (name.empty()) refuse_tokenizer("llama.cpp has no pre-tokenizer like the model's");
  if (spec.ignore_merges && name != "llama-bpe")
    refuse_tokenizer(fmt::format("llama.cpp ignores no merges with the pre-tokenizer {}", name));
  if (spec.add_prefix_space)
    refuse_tokenizer("llama.cpp puts no space before a text with byte-level BPE");
  return name;
}

bool is_byte_token(const std::string& text) {
  constexpr std::size_t kLength = 6;  // <0x0A>
  return text.size() == kLength && text.starts_with("<0x") && text.back() == '>' &&
         std::isxdigit(static_cast<unsigned char>(text[3])) != 0 &&
         std::isxdigit(static_cast<unsigned char>(text[4])) != 0;
}

/// llama.cpp's converter takes these for control tokens, whatever their type in the file.
bool looks_special(const std::string& text) {
  return text == "<pad>" || text == "<mask>" || text == "<2mass>" || text == "[@BOS@]" ||
         (text.starts_with("<|") && text.ends_with("|>")) ||
         (text.starts_with("<unused") && text.ends_with(">"));
}

std::string with_spaces(std::string text) {
  for (std::size_t at = 0; (at = text.find(kWordMark, at)) != std::string::npos; ++at)
    text.replace(at, kWordMark.size(), 1, ' ');
  return text;
}

struct TokenList {
  std::vector<std::string> texts;
  std::vector<int32_t> kinds;
};

TokenList token_list(const BpeSpec& spec) {
  TokenList tokens{spec.vocabulary, std::vector<int32_t>(spec.vocabulary.size(), kNormal)};
  for (std::size_t id = 0; id < tokens.texts.size(); ++id) {
    if (spec.sentencepiece && is_byte_token(tokens.texts[id])) tokens.kinds[id] = kByte;
    if (!tokens.texts[id].empty()) continue;
    tokens.texts[id] = fmt::format("[PAD{}]", id);
    tokens.kinds[id] = kUnused;
  }
  if (spec.sentencepiece && spec.sentencepiece->unknown)
    tokens.kinds.at(static_cast<std::size_t>(*spec.sentencepiece->unknown)) = kUnknown;
  for (const AddedToken& added : spec.added) {
    const auto id = static_cast<std::size_t>(added.id);
    const bool control = added.special || looks_special(added.content);
    tokens.kinds.at(id) = control ? kControl : kUserDefined;
    tokens.texts[id] = control ? added.content : with_spaces(added.content);
  }
  return tokens;
}

/// SentencePiece's own: what is merged first scores highest. llama.cpp merges by them.
std::vector<float> scores_of(const BpeSpec& spec, const std::vector<int32_t>& kinds) {
  std::vector<float> scores(spec.vocabulary.size(), kScoreOfOthers);
  std::vector<bool> scored(scores.size());
  float next = 0;
  const auto score = [&](std::size_t id) {
    if (kinds[id] != kNormal || scored.at(id)) return;
    scored[id] = true;
    scores[id] = next--;
  };
  for (const Merge& merge : spec.merges) score(static_cast<std::size_t>(merge.result));
  for (std::size_t id = 0; id < scores.size(); ++id) score(id);
  for (std::size_t id = 0; id < scores.size(); ++id)
    if (kinds[id] == kByte || kinds[id] == kUnknown) scores[id] = 0;
  return scores;
}

std::vector<std::string> merge_texts(const BpeSpec& spec) {
  std::vector<std::string> texts;
  for (const Merge& merge : spec.merges)
    texts.push_back(fmt::format("{} {}", spec.vocabulary.at(static_cast<std::size_t>(merge.left)),
                                spec.vocabulary.at(static_cast<std::size_t>(merge.right))));
  if (texts.empty()) refuse_tokenizer("llama.cpp has no BPE without merges");
  return texts;
}

Json json_in(const TextFiles& texts, const std::string& name) {
  const auto found = texts.find(name);
  Json json = found == texts.end() ? Json() : parse_bounded_json(found->second, name);
  return json.is_object() ? json : Json::object();
}

/// `entry`: a token's text, alone or as the "content" of an object.
std::optional<int32_t> id_of_text(const Json& entry, const Tokenizer& tokenizer) {
  if (entry.is_object()) return id_of_text(entry.value("content", Json()), tokenizer);
  return entry.is_string() ? tokenizer.token_of(entry.get<std::string>()) : std::nullopt;
}

/// The special tokens by name, of tokenizer_config.json or else of config.json.
std::map<std::string, int32_t> special_ids(const Tokenizer& tokenizer, const TextFiles& texts) {
  const Json named = json_in(texts, "tokenizer_config.json");
  const Json numbered = json_in(texts, "config.json");
  std::map<std::string, int32_t> ids;
  for (const std::string name : {"bos", "eos", "unk", "pad"}) {
    const Json id = numbered.value(fmt::format("{}_token_id", name), Json());
    if (const auto found =
            id_of_text(named.value(fmt::format("{}_token", name), Json()), tokenizer)) {
      ids[name] = *found;
    } else if (id.is_number_integer() && id >= 0 && id < tokenizer.size()) {
      ids[name] = id;
    }
  }
  return ids;
}

/// With bos, which llama.cpp puts in front of a text if `beginning` is one token.
void add_special_ids(GgufMetadata& keys, std::map<std::string, int32_t> ids,
                     const std::vector<int32_t>& beginning, std::optional<int32_t> end_of_turn) {
  if (beginning.size() > 1)
    refuse_tokenizer("the tokenizer begins a text with several tokens, llama.cpp with one");
  if (!beginning.empty()) ids["bos"] = beginning.front();
  if (end_of_turn && (!ids.contains("eos") || ids["eos"] != *end_of_turn))
    ids["eot"] = *end_of_turn;
  const std::map<std::string, std::string> names = {
      {"bos", "bos"}, {"eos", "eos"}, {"eot", "eot"}, {"pad", "padding"}, {"unk", "unknown"}};
  for (const auto& [name, id] : ids)
    keys.emplace_back(fmt::format("tokenizer.ggml.{}_token_id", names.at(name)),
                      static_cast<uint32_t>(id));
  keys.emplace_back("tokenizer.ggml.add_bos_token", !beginning.empty());
  keys.emplace_back("tokenizer.ggml.add_eos_token", false);
}

std::string template_in(const TextFiles& texts) {
  if (const auto file = texts.find("chat_template.jinja"); file != texts.end()) return file->second;
  const Json text = json_in(texts, "tokenizer_config.json").value("chat_template", Json());
  return text.is_string() ? text.get<std::string>() : "";
}

}  // namespace

GgufMetadata gguf_tokenizer(const Tokenizer& tokenizer, const TextFiles& texts,
                            const std::optional<ChatFacts>& chat) {
  if (tokenizer.kind() != "bpe")
    refuse_tokenizer(fmt::format("llama.cpp has no {} tokenizer", tokenizer.kind()));
  const BpeSpec spec = read_tokenizer_json(parse_bounded_json(tokenizer.state(), "tokenizer.json"),
                                           "tokenizer.json");
  TokenList tokens = token_list(spec);
  GgufMetadata keys;
  const auto add = [&keys](const char* name, GgufValue value) {
    keys.emplace_back(fmt::format("tokenizer.ggml.{}", name), std::move(value));
  };
  add("model", std::string(spec.sentencepiece ? "llama" : "gpt2"));
  add("pre", spec.sentencepiece ? "default" : word_splitter_of(spec));
  if (spec.sentencepiece) {
    add("scores", scores_of(spec, tokens.kinds));
    add("add_space_prefix", spec.sentencepiece->prepend != SentencePieceRules::Prepend::kNever);
  } else {
    add("merges", merge_texts(spec));
  }
  add("tokens", std::move(tokens.texts));
  add("token_type", std::move(tokens.kinds));
  add_special_ids(keys, special_ids(tokenizer, texts), spec.beginning,
                  chat ? chat->end_of_turn : std::nullopt);
  if (std::string text = template_in(texts); !text.empty())
    keys.emplace_back("tokenizer.chat_template", std::move(text));
  return keys;
}

}  // namespace ddp::train
