#include "trainer/interop/tokenizer_files.h"

#include <nlohmann/json.hpp>

#include "trainer/tokenizer/bpe/bpe_spec.h"
#include "trainer/tokenizer/bpe/byte_alphabet.h"
#include "trainer/tokenizer/special_tokens.h"
#include "trainer/tokenizer/wordpiece/wordpiece_file.h"
#include "trainer/tokenizer/wordpiece/wordpiece_tokenizer.h"

namespace ddp::train {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson split_into_characters() {
  return {{"type", "Split"},
          {"pattern", {{"Regex", "[\\s\\S]"}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

/// WordLevel refuses a character that it does not have when its unknown token is none of its own.
OrderedJson one_token_per_character(const OrderedJson& vocabulary, OrderedJson pre_tokenizer,
                                    OrderedJson decoder) {
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", OrderedJson::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", std::move(pre_tokenizer)},
          {"post_processor", nullptr},
          {"decoder", std::move(decoder)},
          {"model", {{"type", "WordLevel"}, {"vocab", vocabulary}, {"unk_token", "<unk>"}}}};
}

OrderedJson character_tokenizer(const Tokenizer& tokenizer) {
  OrderedJson vocabulary = OrderedJson::object();
  for (int32_t token = 0; token < tokenizer.size(); ++token)
    vocabulary[tokenizer.decode(token)] = token;
  return one_token_per_character(vocabulary, split_into_characters(), {{"type", "Fuse"}});
}

OrderedJson byte_tokenizer(const Tokenizer& tokenizer) {
  OrderedJson vocabulary = OrderedJson::object();
  for (int32_t token = 0; token < tokenizer.size(); ++token) {
    const std::string bytes = tokenizer.decode(token);
    if (bytes.size() == 1) vocabulary[bytes_to_symbols(bytes)] = token;
  }
  const OrderedJson byte_level = {{"type", "ByteLevel"},
                                  {"add_prefix_space", false},
                                  {"trim_offsets", true},
                                  {"use_regex", false}};
  const OrderedJson both = {{"type", "Sequence"},
                            {"pretokenizers", {byte_level, split_into_characters()}}};
  OrderedJson file = one_token_per_character(vocabulary, both, byte_level);
  if (const auto end = tokenizer.end_of_text()) {
    file["added_tokens"].push_back({{"id", *end},
                                    {"content", kEndOfText},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false},
                                    {"special", true}});
  }
  return file;
}

TextFiles wordpiece_files(const WordpieceTokenizer& tokenizer, int64_t model_max_length) {
  const WordpieceSpec& spec = tokenizer.spec();
  const OrderedJson config = {{"tokenizer_class", "BertTokenizer"},
                              {"do_lower_case", spec.words.lower_case},
                              {"strip_accents", spec.words.strip_accents},
                              {"tokenize_chinese_chars", spec.words.split_cjk},
                              {"pad_token", kPadToken},
                              {"unk_token", spec.unknown},
                              {"cls_token", kFirstToken},
                              {"sep_token", kLastToken},
                              {"mask_token", kMaskToken},
                              {"model_max_length", model_max_length}};
  return {{"tokenizer.json", tokenizer.state()},
          {"vocab.txt", vocab_txt(spec)},
          {"tokenizer_config.json", config.dump(2) + "\n"}};
}

/// Adds the tokens that the chat template uses; without one, the end-of-text token also begins a
/// text.
void add_special_tokens(const Tokenizer& tokenizer, const std::optional<ChatFacts>& chat,
                        OrderedJson& config) {
  if (chat) {
    for (const auto& [name, text] : chat->special) config[name] = text;
  }
  const auto end = tokenizer.end_of_text();
  if (!end || (chat && config.contains("eos_token"))) return;
  const std::string text = tokenizer.decode(*end);
  for (const char* name : {"bos_token", "eos_token"}) {
    if (!config.contains(name)) config[name] = text.empty() ? kEndOfText : text;
  }
}

}  // namespace

TextFiles tokenizer_files(const Tokenizer& tokenizer, int64_t model_max_length,
                          const std::optional<ChatFacts>& chat, bool of_bert) {
  if (const auto* wordpiece = dynamic_cast<const WordpieceTokenizer*>(&tokenizer))
    return wordpiece_files(*wordpiece, model_max_length);
  OrderedJson config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                        {"clean_up_tokenization_spaces", false},
                        {"model_max_length", model_max_length}};
  add_special_tokens(tokenizer, chat, config);
  if (of_bert) {
    const BertTokenNames& names = token_names_of(tokenizer);
    config.update(OrderedJson{{"cls_token", names.first},
                              {"bos_token", names.first},
                              {"sep_token", names.last},
                              {"eos_token", names.last},
                              {"pad_token", names.pad},
                              {"mask_token", names.mask},
                              {"unk_token", names.unknown}});
  }
  TextFiles files;
  if (chat) {
    config["chat_template"] = chat->source;
    files["chat_template.jinja"] = chat->source;
  }
  if (tokenizer.kind() == "char") {
    files["tokenizer.json"] = character_tokenizer(tokenizer).dump(2) + "\n";
  } else if (tokenizer.kind() == "byte") {
    files["tokenizer.json"] = byte_tokenizer(tokenizer).dump(2) + "\n";
  } else {
    files["tokenizer.json"] = without_end_mark(tokenizer.state());
  }
  files["tokenizer_config.json"] = config.dump(2) + "\n";
  return files;
}

}  // namespace ddp::train
