// BERT's basic tokenisation: splits a text into words before these are divided into pieces.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace ddp::train {

struct BertWordOptions {
  bool lower_case = true;
  bool strip_accents = true;  ///< NFD, and no marks that take no space.
  bool clean_text = true;     ///< No control characters; every white space is a space.
  bool split_cjk = true;      ///< Each Chinese character is a word.
  bool operator==(const BertWordOptions&) const = default;
};

/// Calls back for each word of `text` in order: letters and signs between white space, each
/// punctuation mark alone. As BertNormalizer and BertPreTokenizer of Python's `tokenizers` 0.23,
/// whose character classes are Unicode 8's. After tokenization.py of
/// https://github.com/google-research/bert. Throws UserError if `text` is not valid UTF-8.
void for_each_bert_word(std::string_view text, const BertWordOptions& options,
                        const std::function<void(std::string_view)>& on_word);

}  // namespace ddp::train
