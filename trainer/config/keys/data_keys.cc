#include "trainer/config/add_tokens.h"
#include "trainer/config/keys/key_rows.h"

namespace ddp::train {
namespace {

struct AddTokens {
  std::vector<std::string> tokens;
};
const bool kIsAdded = (ModelSections::add<AddTokens>(), true);

}  // namespace

const std::vector<std::string>& add_tokens(const Config& config) {
  return config.models.of<AddTokens>().tokens;
}

std::vector<Field> data_fields() {
  return {
      {DDP_KEY(data, path), .null_means = NullMeans::kNotGiven,
       .default_text = "required, or sources",
       .meaning = "Training data: a text file (UTF-8), a file of rows (.jsonl, .json, .csv, .tsv, "
                  ".parquet), a token file, a glob or a folder of such files. Relative paths start "
                  "at the current directory."},
      {DDP_KEY(data, sources), .null_means = NullMeans::kOff, .tasks = {TaskKind::kCausalLm},
       .meaning = "Training data from several sources instead of path: [{path: web, weight: 3}, "
                  "{path: code, weight: 1}]. An epoch has as many sequences as all sources "
                  "together, and takes them from each in proportion to its weight."},
      {DDP_KEY(data, format), .tasks = {TaskKind::kCausalLm},
       .meaning = "auto: .bin files hold tokens, .jsonl, .csv and the like rows, all others text; "
                  "chat: JSON with conversations (docs/chat.md). The formats are described in "
                  "docs/data.md."},
      {DDP_KEY(data, loss_on), .tasks = {TaskKind::kCausalLm},
       .meaning = "Targets of format=chat. assistant: what the assistant says, and the token that "
                  "ends its turns; all: every token."},
      {DDP_KEY(data, tokenizer), .null_means = NullMeans::kNotGiven,
       .default_text =
           "init_from's for text and chat, else char for text; for tokens the folder's own",
       .tasks = kTextTasks,
       .meaning = "char, byte, or a folder written by trainer tokenize, or one with vocab.json and "
                  "merges.txt, or vocab.txt. text_classification defaults to the vocabulary of "
                  "init_from, else trains one on its training texts."},
      {.path = "data_config.add_tokens",
       .member = [](Config& c) -> FieldPointer { return &c.models.of<AddTokens>().tokens; },
       .null_means = NullMeans::kOff,
       .tasks = kCausalTasks,
       .meaning =
           "Texts to append to the tokenizer as a token each, as transformers' "
           "tokenizer.add_tokens does. The model's tables gain a row for each, which begins "
           "as the mean of the others and is trained, next to adapters as well (lora.rank). For "
           "BPE tokenizers."},
      {DDP_KEY(data, eval_path), .null_means = NullMeans::kNotGiven,
       .default_text = "a part of path: train_split",
       .meaning = "Evaluation data, given like path; all of path is then used for training."},
      {DDP_KEY(data, eval_sets), .null_means = NullMeans::kOff, .tasks = kCausalTasks,
       .meaning = "Further evaluation data: names and paths like eval_path, {wiki: wiki.txt}; "
                  "their metrics are wiki_loss, wiki_perplexity and so on."},
      {DDP_KEY(data, mask_documents), .null_means = NullMeans::kOff, .tasks = {TaskKind::kCausalLm},
       .meaning = "Documents of a sequence, which end with the tokenizer's end-of-text token, do "
                  "not attend to each other, and positions start anew in each."},
      {DDP_KEY(data, test_path), .null_means = NullMeans::kNotGiven, .default_text = "none",
       .tasks = kTextTasks,
       .meaning = "Test data, given like path; evaluated once, after training."},
      {DDP_KEY(data, block_size), .range = kUpTo1e6, .unit = "tokens", .tasks = kTextTasks,
       .meaning = "Context length: tokens per input sequence."},
      {DDP_KEY(data, train_split), .range = kShare, .unit = "share",
       .meaning = "Leading share of the text to train on; the rest is for evaluation. 1: no "
                  "evaluation. Unused with eval_path."},
      {DDP_KEY(data, truncate), .range = kShare, .unit = "share",
       .meaning = "Leading share of the text to use; 1: all of it."},
      {DDP_KEY(data, stride), .range = kUpTo1e9, .whole = true, .unit = "tokens",
       .tasks = {TaskKind::kCausalLm},
       .meaning =
           "Distance between the starts of consecutive training sequences; 1: every position; "
           "auto: half of block_size, or less if an epoch would have fewer than 512 sequences."},
      {DDP_KEY(data, on_bad_sample),
       .meaning = "What to do about an unusable sample, such as a broken image, or a row or a "
                  "conversation that cannot be read: skip it, log and count it; or stop the run."},
      {DDP_KEY(data, text_column),
       .tasks = {TaskKind::kCausalLm, TaskKind::kMaskedLm, TaskKind::kTextClassification},
       .meaning = "Column of a table, or field of JSON objects, with the texts."},
      {DDP_KEY(data, label_column), .tasks = {TaskKind::kTextClassification},
       .meaning = "Column of a table, or field of JSON objects, with the labels; for "
                  "bert_config.problem_type=regression with numbers."},
      {DDP_KEY(data, text_pair_column), .null_means = NullMeans::kNotGiven, .default_text = "none",
       .tasks = {TaskKind::kTextClassification},
       .meaning = "Column with the second text of each row, for pairs of texts such as a premise "
                  "and a hypothesis."},
      {DDP_KEY(data, label_separator), .tasks = {TaskKind::kTextClassification},
       .meaning = "What separates the labels of a row with "
                  "bert_config.problem_type=multi_label_classification, unless they are a JSON "
                  "list."},
      {DDP_KEY(data, bucket_batches), .range = Range{0, 1e4}, .unit = "micro-batches",
       .null_means = NullMeans::kOff, .tasks = {TaskKind::kTextClassification},
       .meaning = "Sort the samples of this many micro-batches by length before batching them, to "
                  "reduce padding; 0: random order."},
      {DDP_KEY(data, min_characters), .range = Range{0, 1e9}, .unit = "characters",
       .tasks = {TaskKind::kMaskedLm}, .meaning = "Skip lines shorter than this; 0: keep all."},
      {DDP_KEY(data, mask_share), .range = kShare, .unit = "share", .tasks = {TaskKind::kMaskedLm},
       .meaning = "Share of each line's tokens to predict, at least one: 80 % of them become "
                  "[MASK], 10 % a random token, 10 % stay unchanged."},
  };
}

}  // namespace ddp::train
