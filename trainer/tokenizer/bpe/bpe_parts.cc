#include "trainer/tokenizer/bpe/bpe_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/runtime/error.h"
#include "trainer/runtime/files/foreign_json.h"

namespace ddp::train {
namespace {

using Json = nlohmann::json;
using Prepend = SentencePieceRules::Prepend;

constexpr const char* kSpaceMark = "\u2581";

struct KnownPattern {
  std::string_view regex;
  WordStage stage;
};

constexpr KnownPattern kPatterns[] = {
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
     WordStage::kGpt2},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     WordStage::kLlama},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     WordStage::kQwen},
};

std::string part_text(const Json& value) {
  return value.is_string() ? value.get<std::string>() : "";
}

/// The steps of a part: those of a Sequence, or it alone; none of null.
std::vector<const Json*> steps_of(const Json& part, const char* list) {
  std::vector<const Json*> steps;
  if (part.is_null()) return steps;
  if (part_type(part) != "Sequence") return {&part};
  for (const Json& step : part_member(part, list)) steps.push_back(&step);
  return steps;
}

bool replaces(const Json& step, const char* pattern, const char* content) {
  return part_type(step) == "Replace" &&
         part_text(part_member(part_member(step, "pattern"), "String")) == pattern &&
         part_text(part_member(step, "content")) == content;
}

class PartsReader {
 public:
  PartsReader(const Json& root, std::string name, BpeSpec& spec)
      : root_(root), name_(std::move(name)), spec_(spec) {}

  void read() {
    read_normalizer();
    read_pre_tokenizer();
    if (spec_.sentencepiece) {
      read_model_flags();
      read_decoder();
    } else {
      check_byte_level();
    }
    read_beginning(part_member(root_, "post_processor"));
    keep_parts();
  }

 private:
  [[noreturn]] void refuse(const std::string& key, const Json& value, const char* what) const {
    throw UserError(fmt::format(
        "{}: {} is {}; this trainer reads {}", name_, key,
        quoted_part(value.is_string() ? value.get<std::string>() : value.dump()), what));
  }

  void read_normalizer() {
    constexpr const char* kKnown = "none, NFC, or Replace as Llama 2 and Gemma have it";
    const Json& part = part_member(root_, "normalizer");
    const auto steps = steps_of(part, "normalizers");
    if (steps.empty()) return;
    if (steps.size() == 1 && part_type(*steps[0]) == "NFC") {
      spec_.nfc = true;
      return;
    }
    const bool prepends = part_type(*steps[0]) == "Prepend" &&
                          part_text(part_member(*steps[0], "prepend")) == kSpaceMark;
    if (steps.size() != (prepends ? 2 : 1) || !replaces(*steps.back(), " ", kSpaceMark))
      refuse("normalizer", part, kKnown);
    spec_.sentencepiece.emplace().prepend = prepends ? Prepend::kAlways : Prepend::kNever;
  }

  void read_pre_tokenizer() {
    const Json& part = part_member(root_, "pre_tokenizer");
    const auto steps = steps_of(part, "pretokenizers");
    if (steps.size() == 1 && part_type(*steps[0]) == "Metaspace" && !spec_.nfc &&
        !spec_.sentencepiece)
      return read_metaspace(*steps[0]);
    // Gemma's splits at spaces, of which its normalizer leaves none.
    const bool splits_spaces =
        steps.size() == 1 && part_type(*steps[0]) == "Split" &&
        part_text(part_member(part_member(*steps[0], "pattern"), "String")) == " " &&
        !part_flag(*steps[0], "invert", false);
    if (spec_.sentencepiece && (steps.empty() || splits_spaces)) return;
    if (spec_.sentencepiece || steps.empty() || part_type(*steps.back()) != "ByteLevel")
      refuse("pre_tokenizer", part,
             "ByteLevel, alone or after Split and Digits, and SentencePiece's Metaspace");
    spec_.words.clear();
    for (const Json* step : steps) read_word_stage(*step, steps.size() == 1);
  }

  void read_metaspace(const Json& part) {
    SentencePieceRules& rules = spec_.sentencepiece.emplace();
    rules.marks_first = false;
    if (part_text(part_member(part, "replacement")) != kSpaceMark)
      refuse("pre_tokenizer.replacement", part_member(part, "replacement"), kSpaceMark);
    rules.split = part_flag(part, "split", true);
    const std::string scheme = part_text(part_member(part, "prepend_scheme"));
    const bool adds = part_flag(part, "add_prefix_space", true);  // of files before prepend_scheme
    if (scheme == "first")
      rules.prepend = Prepend::kFirst;
    else if (scheme == "never" || (scheme.empty() && !adds))
      rules.prepend = Prepend::kNever;
    else
      rules.prepend = Prepend::kMissing;
  }

  void read_word_stage(const Json& step, bool alone) {
    const std::string type = part_type(step);
    if (type == "ByteLevel") {
      if (part_flag(step, "use_regex", true)) spec_.words.push_back(WordStage::kGpt2);
      spec_.add_prefix_space = part_flag(step, "add_prefix_space", true);
      if (spec_.add_prefix_space && !alone)
        refuse("pre_tokenizer.add_prefix_space", true, "false in a Sequence");
    } else if (type == "Digits") {
      spec_.words.push_back(part_flag(step, "individual_digits", false) ? WordStage::kDigit
                                                                        : WordStage::kDigits);
    } else if (type == "Split") {
      spec_.words.push_back(stage_of(step));
    } else {
      refuse("pre_tokenizer.type", type, "Split, Digits and ByteLevel");
    }
  }

  WordStage stage_of(const Json& split) const {
    const std::string regex = part_text(part_member(part_member(split, "pattern"), "Regex"));
    const auto* known = std::find_if(std::begin(kPatterns), std::end(kPatterns),
                                     [&](const KnownPattern& each) { return each.regex == regex; });
    if (known == std::end(kPatterns))
      refuse("pre_tokenizer.pattern", part_member(split, "pattern"),
             "the patterns of GPT-2, Llama 3 and Qwen 2 and 3");
    if (part_text(part_member(split, "behavior")) != "Isolated" ||
        part_flag(split, "invert", false))
      refuse("pre_tokenizer.behavior", part_member(split, "behavior"), "Isolated, not inverted");
    return known->stage;
  }

  void check_byte_level() const {
    const Json& model = part_member(root_, "model");
    if (part_flag(model, "byte_fallback", false))
      refuse("model.byte_fallback", true, "it with SentencePiece's Metaspace only");
    const Json& decoder = part_member(root_, "decoder");
    if (!decoder.is_null() && part_type(decoder) != "ByteLevel")
      refuse("decoder", decoder, "ByteLevel here");
  }

  void read_model_flags() {
    const Json& model = part_member(root_, "model");
    SentencePieceRules& rules = *spec_.sentencepiece;
    rules.byte_fallback = part_flag(model, "byte_fallback", false);
    rules.fuse_unknown = part_flag(model, "fuse_unk", false);
    const std::string unknown = part_text(part_member(model, "unk_token"));
    if (unknown.empty()) return;
    const auto found = std::find(spec_.vocabulary.begin(), spec_.vocabulary.end(), unknown);
    if (found == spec_.vocabulary.end())
      refuse("model.unk_token", unknown, "one that is in the vocabulary");
    rules.unknown = static_cast<int32_t>(found - spec_.vocabulary.begin());
  }

  void read_decoder() {
    constexpr const char* kKnown = "Metaspace, or Replace, ByteFallback, Fuse and Strip";
    const Json& part = part_member(root_, "decoder");
    SentencePieceRules& rules = *spec_.sentencepiece;
    if (part_type(part) == "Metaspace" && !rules.byte_fallback) {
      rules.strip_first_space = part_text(part_member(part, "prepend_scheme")) != "never";
      return;
    }
    const auto steps = steps_of(part, "decoders");
    std::size_t next = 0;
    const auto has = [&](const char* type) {
      return next < steps.size() && part_type(*steps[next]) == type && ++next != 0;
    };
    if (steps.empty() || !replaces(*steps[next++], kSpaceMark, " ") ||
        has("ByteFallback") != rules.byte_fallback || !has("Fuse"))
      refuse("decoder", part, kKnown);
    if (next < steps.size()) rules.strip_first_space = strips_one_space(*steps[next++]);
    if (next != steps.size()) refuse("decoder", part, kKnown);
  }

  bool strips_one_space(const Json& step) const {
    if (part_type(step) != "Strip" || part_text(part_member(step, "content")) != " " ||
        part_member(step, "stop") != 0 ||
        (part_member(step, "start") != 1 && part_member(step, "start") != 0))
      refuse("decoder.Strip", step, "one that takes a space from the start");
    return part_member(step, "start") == 1;
  }

  /// The special tokens of TemplateProcessing in front of the text.
  void read_beginning(const Json& part) {
    for (const Json* step : steps_of(part, "processors")) {
      if (part_type(*step) != "TemplateProcessing") continue;
      for (const Json& piece : part_member(*step, "single")) {
        const Json& token = part_member(piece, "SpecialToken");
        if (token.is_null()) break;
        add_beginning(part_member(part_member(*step, "special_tokens"),
                                  part_text(part_member(token, "id")).c_str()));
      }
    }
  }

  void add_beginning(const Json& token) {
    for (const Json& id : part_member(token, "ids")) {
      if (!id.is_number_unsigned() || id.get<uint64_t>() >= spec_.vocabulary.size())
        refuse("post_processor.special_tokens", id, "ids of the vocabulary");
      spec_.beginning.push_back(id.get<int32_t>());
    }
  }

  void keep_parts() {
    const Json& splitter = part_member(root_, "pre_tokenizer");
    const bool gpt2 = part_type(splitter) == "ByteLevel" && !spec_.words.empty() && !spec_.nfc &&
                      !spec_.sentencepiece && spec_.beginning.empty();
    if (gpt2) return;
    Json parts = Json::object();
    for (const char* key : {"normalizer", "pre_tokenizer", "post_processor", "decoder"})
      parts[key] = part_member(root_, key);
    const Json& model = part_member(root_, "model");
    for (const char* key : {"unk_token", "fuse_unk", "byte_fallback"})
      parts["model"][key] = part_member(model, key);
    spec_.file_parts = parts.dump();
  }

  const Json& root_;
  const std::string name_;
  BpeSpec& spec_;
};

}  // namespace

const Json& part_member(const Json& object, const char* name) {
  static const Json nothing;
  if (!object.is_object()) return nothing;
  const auto found = object.find(name);
  return found == object.end() ? nothing : *found;
}

bool part_flag(const Json& object, const char* name, bool otherwise) {
  const Json& flag = part_member(object, name);
  return flag.is_boolean() ? flag.get<bool>() : otherwise;
}

std::string part_type(const Json& part) { return part_text(part_member(part, "type")); }

void read_bpe_parts(const Json& root, const std::string& name, BpeSpec& spec) {
  PartsReader(root, name, spec).read();
}

}  // namespace ddp::train
