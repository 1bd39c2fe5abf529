#include "trainer/tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "trainer/runtime/error.h"
#include "trainer/runtime/files/foreign_json.h"
#include "trainer/runtime/files/sha256.h"
#include "trainer/tokenizer/bpe/bpe_file.h"
#include "trainer/tokenizer/bpe/bpe_tokenizer.h"
#include "trainer/tokenizer/byte_tokenizer.h"
#include "trainer/tokenizer/char_tokenizer.h"
#include "trainer/tokenizer/sentencepiece_tokenizer.h"
#include "trainer/tokenizer/special_tokens.h"
#include "trainer/tokenizer/tokenizer_folder.h"
#include "trainer/tokenizer/with_added_tokens.h"
#include "trainer/tokenizer/wordpiece/wordpiece_file.h"
#include "trainer/tokenizer/wordpiece/wordpiece_tokenizer.h"

namespace ddp::train {
namespace {

using Json = nlohmann::json;

std::unique_ptr<Tokenizer> tokenizer_of_kind(const std::string& kind, const Json& json) {
  if (kind == "char")
    return std::make_unique<CharTokenizer>(json.at("characters").get<std::vector<std::string>>());
  if (kind == "byte") return std::make_unique<ByteTokenizer>();
  throw UserError("unsupported kind of tokenizer: " + quoted_part(kind));
}

/// The pre-tokeniser of files with one token for each character, as trainer export and
/// scripts/convert_checkpoint.py write them for Python's `tokenizers`.
bool splits_characters(const Json& pre) {
  return pre.is_object() && pre.value("type", "") == "Split" && pre.contains("pattern") &&
         pre["pattern"].value("Regex", "") == "[\\s\\S]";
}

/// Null when `json` is not such a file. Bytes go through ByteLevel before they are split.
std::unique_ptr<Tokenizer> character_level(const Json& json) {
  if (!json.is_object() || !json.contains("model") || !json.contains("pre_tokenizer") ||
      !json["model"].is_object() || json["model"].value("type", "") != "WordLevel")
    return nullptr;
  const Json& pre = json["pre_tokenizer"];
  const Json parts = pre.is_object() ? pre.value("pretokenizers", Json::array()) : Json::array();
  if (parts.size() == 2 && parts[0].value("type", "") == "ByteLevel" && splits_characters(parts[1]))
    return std::make_unique<ByteTokenizer>();
  if (!splits_characters(pre)) return nullptr;
  const auto ids = json["model"].at("vocab").get<std::map<std::string, std::size_t>>();
  std::vector<std::string> characters(ids.size());
  for (const auto& [character, id] : ids) {
    if (id >= characters.size()) throw UserError("its ids have gaps");
    characters[id] = character;
  }
  return std::make_unique<CharTokenizer>(std::move(characters));
}

std::unique_ptr<Tokenizer> wordpiece_of(const Json& json, const std::string& name) {
  return std::make_unique<WordpieceTokenizer>(read_wordpiece_json(json, name));
}

}  // namespace

std::unique_ptr<Tokenizer> parse_tokenizer(std::string_view text, const std::string& name,
                                           const std::string& folder) {
  const Json json = parse_bounded_json(text, name);
  try {
    if (json.is_object() && json.contains("kind"))
      return tokenizer_of_kind(json["kind"].get<std::string>(), json);
    if (auto characters = character_level(json)) return characters;
    if (is_wordpiece_json(json)) return wordpiece_of(json, name);
  } catch (const Json::exception&) {
    throw UserError(name + ": is damaged: its members are not those of its kind");
  } catch (const std::runtime_error& error) {
    const std::string what = error.what();
    throw UserError(what.starts_with(name) ? what : name + ": " + what);
  }
  BpeSpec spec = read_tokenizer_json(json, name);
  if (!folder.empty()) set_end_of_text(spec, end_of_text_in(folder));
  if (spec.sentencepiece) return std::make_unique<SentencePieceTokenizer>(std::move(spec));
  return std::make_unique<BpeTokenizer>(std::move(spec));
}

std::unique_ptr<Tokenizer> tokenizer_from_state(const std::string& state) {
  try {
    return parse_tokenizer(state, "the snapshot's tokenizer");
  } catch (const UserError& error) {
    throw RunError(error.what());
  }
}

std::unique_ptr<Tokenizer> with_added_tokens(std::unique_ptr<Tokenizer> tokenizer,
                                             const std::vector<std::string>& tokens) {
  const auto size = static_cast<int32_t>(tokenizer->size());
  int32_t id = size - static_cast<int32_t>(tokens.size());
  if (std::ranges::all_of(tokens,
                          [&](const auto& text) { return tokenizer->token_of(text) == id++; }))
    return tokenizer;
  constexpr const char* kKey = "data_config.add_tokens";
  if (tokenizer->kind() != "bpe") {
    throw UserError(fmt::format(
        "{}: tokens are added to BPE tokenizers, and this one is {}; remove the key, or name the "
        "folder of another tokenizer as data_config.tokenizer",
        kKey, tokenizer->kind()));
  }
  Json file = Json::parse(tokenizer->state());
  std::vector<AddedToken> added;
  std::set<std::string> known;
  id = size;
  for (const auto& each : file.at("added_tokens")) known.insert(each.at("content"));
  for (const std::string& text : tokens) {
    if (text.empty()) throw UserError(fmt::format("{}: an empty text is no token", kKey));
    if (file.at("model").at("vocab").contains(text) || !known.insert(text).second)
      throw UserError(fmt::format("{}: {} is a token already; remove it from the list", kKey,
                                  quoted_part(text)));
    added.push_back({text, id++, /*special=*/false, /*normalized=*/true});
  }
  for (const auto& token : added_tokens_json(added)) file["added_tokens"].push_back(Json(token));
  return parse_tokenizer(file.dump(), kKey);
}

std::string tokenizer_fingerprint(const Tokenizer& tokenizer) {
  return sha256_hex(without_end_mark(tokenizer.state()));
}

bool have_same_tokens(const Tokenizer& one, const Tokenizer& other) {
  bool same = one.size() == other.size();
  for (int32_t id = 0; same && id < one.size(); ++id) same = one.decode(id) == other.decode(id);
  return same;
}

}  // namespace ddp::train
