#include "trainer/tokenizer/wordpiece/wordpiece_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "trainer/runtime/error.h"
#include "trainer/runtime/files/foreign_json.h"
#include "trainer/runtime/utf8.h"
#include "trainer/tokenizer/bpe/bpe_file.h"
#include "trainer/tokenizer/bpe/bpe_parts.h"

namespace ddp::train {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr std::array kSpecialTokens = {kPadToken, kUnknownToken, kFirstToken, kLastToken,
                                       kMaskToken};

std::string text_in(const Json& object, const char* name, const char* otherwise) {
  const Json& text = part_member(object, name);
  return text.is_string() ? text.get<std::string>() : otherwise;
}

BertWordOptions options_of_normalizer(const Json& normalizer) {
  BertWordOptions options;
  options.lower_case = part_flag(normalizer, "lowercase", true);
  options.strip_accents = part_flag(normalizer, "strip_accents", options.lower_case);
  options.clean_text = part_flag(normalizer, "clean_text", true);
  options.split_cjk = part_flag(normalizer, "handle_chinese_chars", true);
  return options;
}

/// Only what is reproduced token for token is read.
void check_wordpiece_parts(const Json& root, const std::string& name) {
  for (const auto& [part, wanted] : {std::pair{"normalizer", "BertNormalizer"},
                                     std::pair{"pre_tokenizer", "BertPreTokenizer"}}) {
    const std::string type = part_type(part_member(root, part));
    if (type == wanted) continue;
    throw UserError(fmt::format("{}: its {} is {}; for wordpieces this trainer reads {}", name,
                                part, type.empty() ? "missing" : quoted_part(type), wanted));
  }
}

OrderedJson normalizer_json(const BertWordOptions& words) {
  return {{"type", "BertNormalizer"},
          {"clean_text", words.clean_text},
          {"handle_chinese_chars", words.split_cjk},
          {"strip_accents", words.strip_accents},
          {"lowercase", words.lower_case}};
}

/// [CLS] A [SEP], where the vocabulary has both.
OrderedJson post_processor_json(const WordpieceSpec& spec) {
  OrderedJson pieces = OrderedJson::array();
  OrderedJson tokens = OrderedJson::object();
  const auto add_special = [&](const char* token) {
    const auto at = std::find(spec.vocabulary.begin(), spec.vocabulary.end(), token);
    if (at == spec.vocabulary.end()) return false;
    pieces.push_back({{"SpecialToken", {{"id", token}, {"type_id", 0}}}});
    tokens[token] = {{"id", token},
                     {"ids", OrderedJson::array({at - spec.vocabulary.begin()})},
                     {"tokens", OrderedJson::array({token})}};
    return true;
  };
  if (!add_special(kFirstToken)) return nullptr;
  pieces.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  if (!add_special(kLastToken)) return nullptr;
  OrderedJson pair = pieces;
  pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 1}}}});
  pair.push_back({{"SpecialToken", {{"id", kLastToken}, {"type_id", 1}}}});
  return {{"type", "TemplateProcessing"},
          {"single", std::move(pieces)},
          {"pair", std::move(pair)},
          {"special_tokens", std::move(tokens)}};
}

OrderedJson wordpiece_model_json(const WordpieceSpec& spec) {
  return {{"type", "WordPiece"},
          {"unk_token", spec.unknown},
          {"continuing_subword_prefix", spec.prefix},
          {"max_input_chars_per_word", spec.longest_word},
          {"vocab", vocabulary_json(spec.vocabulary)}};
}

}  // namespace

std::vector<AddedToken> special_tokens(const std::vector<std::string>& vocabulary) {
  std::vector<AddedToken> added;
  for (const char* token : kSpecialTokens) {
    const auto at = std::find(vocabulary.begin(), vocabulary.end(), token);
    if (at != vocabulary.end())
      added.push_back({token, static_cast<int32_t>(at - vocabulary.begin())});
  }
  return added;
}

bool is_wordpiece_json(const Json& root) {
  return part_type(part_member(root, "model")) == "WordPiece";
}

WordpieceSpec read_wordpiece_json(const Json& root, const std::string& name) {
  check_wordpiece_parts(root, name);
  const Json& model = root["model"];
  BpeSpec tokens = read_vocabulary_and_added(root, name);
  WordpieceSpec spec;
  spec.vocabulary = std::move(tokens.vocabulary);
  spec.added = std::move(tokens.added);
  spec.words = options_of_normalizer(root["normalizer"]);
  spec.unknown = text_in(model, "unk_token", kUnknownToken);
  spec.prefix = text_in(model, "continuing_subword_prefix", "##");
  const auto longest = model.find("max_input_chars_per_word");
  if (longest != model.end() && longest->is_number_unsigned())
    spec.longest_word = longest->get<int64_t>();
  return spec;
}

WordpieceSpec parse_vocab_txt(std::string_view text, const std::string& name) {
  WordpieceSpec spec;
  std::unordered_set<std::string_view> seen;
  const std::size_t bad = first_bad_byte(text);
  if (bad != std::string_view::npos) throw UserError(name + ": " + not_utf8(text, bad));
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || !seen.insert(line).second) {
      throw UserError(fmt::format("{}: line {} {}; each line is one token of its own", name,
                                  spec.vocabulary.size() + 1,
                                  line.empty() ? "is empty" : "repeats " + quoted_part(line)));
    }
    spec.vocabulary.emplace_back(line);
  }
  spec.added = special_tokens(spec.vocabulary);
  return spec;
}

BertWordOptions read_word_options(const Json& config) {
  BertWordOptions options;
  options.lower_case = part_flag(config, "do_lower_case", true);
  options.strip_accents = part_flag(config, "strip_accents", options.lower_case);
  options.split_cjk = part_flag(config, "tokenize_chinese_chars", true);
  return options;
}

std::string wordpiece_json(const WordpieceSpec& spec) {
  const OrderedJson root = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added_tokens_json(spec.added)},
      {"normalizer", normalizer_json(spec.words)},
      {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
      {"post_processor", post_processor_json(spec)},
      {"decoder", {{"type", "WordPiece"}, {"prefix", spec.prefix}, {"cleanup", true}}},
      {"model", wordpiece_model_json(spec)}};
  return root.dump() + "\n";
}

std::string vocab_txt(const WordpieceSpec& spec) {
  std::string text;
  for (const std::string& token : spec.vocabulary) text += token + "\n";
  return text;
}

}  // namespace ddp::train
