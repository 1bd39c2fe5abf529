// Trains a wordpiece vocabulary on counted words.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trainer/tokenizer/bpe/bpe_trainer.h"
#include "trainer/tokenizer/wordpiece/wordpiece_tokenizer.h"

namespace ddp::train {

/// [PAD], [UNK], [CLS], [SEP], [MASK], then the characters by code point, those within words with
/// "##", then the merged pieces: as `tokenizers`' WordPieceTrainer does with the settings of
/// BertWordPieceTokenizer.train(), that is, the 1,000 most frequent characters and pairs that occur
/// at least twice. Unlike there, ids are the same each time. The vocabulary is smaller than `size`
/// if no pair is left. `words` are those of for_each_bert_word(). Throws UserError if `size` is too
/// small for the characters.
WordpieceSpec train_wordpiece(const WordCounts& words, int64_t size,
                              std::size_t most_characters = 1000);

}  // namespace ddp::train
