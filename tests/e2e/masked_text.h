// Lines of text and a vocabulary to train a masked language model on.
#pragma once

#include <string>

#include "tests/e2e/job.h"

namespace ddp::test {

inline constexpr const char* kMaskedConfig = R"(task: masked_lm
data_config:
  path: text.txt
  tokenizer: vocab.txt
  block_size: 24
  train_split: 0.8
  min_characters: 20
bert_config: {n_layer: 2, n_head: 2, n_embd: 32, intermediate: 48}
)";

inline constexpr const char* kVocabularyWords =
    "the\nbrook\nran\nhigh\nand\nanna\nbaked\nbread\nkarl\nlooked\nbelow\nan\nold\noak\nbut\napfel"
    "\n"
    ".\n,\n##s\n";
inline constexpr const char* kSpecialTokens = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";

/// Lines of unequal lengths, so that micro-batches hide unequal numbers of tokens.
inline std::string lines_of_text() {
  constexpr const char* kLines[] = {
      "The brook ran high and Anna baked bread.",
      "Karl looked below an old oak, but the brook ran.",
      "Anna ran and Karl ran and the brook ran high and high.", "Short line.",
      "\u00c4pfel and bread, bread and \u00c4pfel: the old oak looked below."};
  std::string text;
  for (int i = 0; i < 90; ++i) text += kLines[(i * i + i / 3) % 5] + std::string("\n");
  return text;
}

struct MaskedWorkspace : Workspace {
  MaskedWorkspace() {
    write("config.yaml", tiny_config(kMaskedConfig, 12, 4));
    write("text.txt", lines_of_text());
    write("vocab.txt", std::string(kSpecialTokens) + kVocabularyWords);
  }
};

}  // namespace ddp::test
