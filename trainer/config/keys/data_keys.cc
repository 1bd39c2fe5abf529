#include "trainer/config/keys/key_rows.h"

namespace ddp::train {

std::vector<Field> data_fields() {
  return {
      {DDP_KEY(data, path), .default_text = "required",
       .meaning = "What to train on: a text file (UTF-8), a file of tokens, a glob or a folder of "
                  "such files. A relative path starts at the current directory."},
      {DDP_KEY(data, format),
       .meaning = "auto: .bin files hold tokens, all others text. docs/data.md has the layouts."},
      {DDP_KEY(data, tokenizer), .null_means = NullMeans::kNotGiven,
       .default_text = "char for text, the folder's own for tokens",
       .meaning = "char, byte, or a folder that trainer tokenize has written, or with vocab.json "
                  "and merges.txt."},
      {DDP_KEY(data, eval_path), .null_means = NullMeans::kNotGiven,
       .default_text = "a part of path: train_split",
       .meaning = "Files to evaluate on, as path; all of path is for training then."},
      {DDP_KEY(data, test_path), .null_means = NullMeans::kNotGiven, .default_text = "none",
       .tasks = {TaskKind::kCausalLm, TaskKind::kMaskedLm, TaskKind::kTextClassification},
       .meaning = "Files to evaluate on once, when training has ended, as eval_path."},
      {DDP_KEY(data, block_size), .range = kUpTo1e6, .unit = "tokens",
       .meaning = "Context length: tokens per input sequence."},
      {DDP_KEY(data, train_split), .range = kShare, .unit = "share",
       .meaning = "Leading share of the text to train on; the rest is for evaluation. 1: no "
                  "evaluation. Unused with eval_path."},
      {DDP_KEY(data, truncate), .range = kShare, .unit = "share",
       .meaning = "Leading share of the text to use; 1: all of it."},
      {DDP_KEY(data, stride), .range = kUpTo1e9, .unit = "tokens",
       .meaning =
           "Distance between the starts of consecutive training sequences; 1: every position; "
           "auto: half of block_size, less where an epoch would have fewer than 512 sequences."},
      {DDP_KEY(data, on_bad_sample),
       .tasks = {TaskKind::kImageClassification, TaskKind::kTextClassification},
       .meaning = "A sample that cannot be used, such as a broken image or an empty text: skip "
                  "leaves it out, names and counts it; stop ends the run."},
      {DDP_KEY(data, text_column), .tasks = {TaskKind::kTextClassification},
       .meaning = "Column of a table, or name in its JSON objects, that holds the texts."},
      {DDP_KEY(data, label_column), .tasks = {TaskKind::kTextClassification},
       .meaning = "And the one that holds their labels."},
      {DDP_KEY(data, bucket_batches), .range = Range{0, 1e4}, .unit = "micro-batches",
       .null_means = NullMeans::kOff, .tasks = {TaskKind::kTextClassification},
       .meaning = "So many micro-batches at a time are made of samples that are sorted by length, "
                  "so that less of them is padding; 0: samples come in random order."},
      {DDP_KEY(data, min_characters), .range = Range{0, 1e9}, .unit = "characters",
       .tasks = {TaskKind::kMaskedLm}, .meaning = "Shorter lines are left out; 0: none."},
      {DDP_KEY(data, mask_share), .range = kShare, .unit = "share", .tasks = {TaskKind::kMaskedLm},
       .meaning = "Share of a line's tokens to predict, one at least: 80 % of them become [MASK], "
                  "10 % a random token, 10 % stay."},
  };
}

}  // namespace ddp::train
