// data_config: the data to read, and their conversion to samples.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/config/value_types.h"

namespace ddp::train {

/// The reaction to a sample that cannot be read.
enum class OnBadSample { kSkip, kStop };
inline Names names_of(OnBadSample) { return {"skip", "stop"}; }

enum class DataFormat { kAuto, kText, kTokens, kChat };
inline Names names_of(DataFormat) { return {"auto", "text", "tokens", "chat"}; }

/// Which tokens of a conversation are targets.
enum class LossOn { kAssistant, kAll };
inline Names names_of(LossOn) { return {"assistant", "all"}; }

/// A part of the training data; an epoch draws from it in proportion to its weight.
struct WeightedSource {
  std::string path;  ///< As DataConfig::path.
  double weight = 1.0;
};

/// A further set to evaluate on.
struct NamedSet {
  std::string name;
  std::string path;  ///< As DataConfig::eval_path.
};

struct DataConfig {
  std::string path;  ///< A file, glob or folder: UTF-8 text or tokens. Absolute after loading.
  std::vector<WeightedSource> sources;  ///< Instead of path.
  DataFormat format = DataFormat::kAuto;
  LossOn loss_on = LossOn::kAssistant;  ///< For format chat.
  std::string tokenizer;  ///< char, byte or a folder, absolute after loading; empty: see its key.
  std::string eval_path;  ///< As path, for evaluation only; empty: split by train_split.
  std::string test_path;  ///< As eval_path, evaluated once, after training.
  std::vector<NamedSet> eval_sets;  ///< Evaluated whenever the evaluation data are.
  bool mask_documents = false;      ///< Attention does not cross a window's documents.
  int64_t block_size = 128;         ///< Input sequence length, tokens.
  double train_split =
      0.9;  ///< Share of the text, from its start, used for training; the rest is for evaluation.
  double truncate = 1.0;  ///< Share of the text, from its start, that is used at all.
  /// Distance between the starts of two training windows, tokens.
  AutoNumber stride = {false, 1.0};
  OnBadSample on_bad_sample = OnBadSample::kStop;
  std::string text_column = "text";    ///< Where a table has its texts,
  std::string label_column = "label";  ///< and for text_classification their classes;
  std::string text_pair_column;        ///< the second texts of pairs; empty: there are none.
  std::string label_separator = ",";   ///< Between several labels of a text.
  int64_t bucket_batches = 0;  ///< Micro-batches made of samples sorted by length; 0: unsorted.
  int64_t min_characters = 0;  ///< masked_lm: shorter lines are left out.
  double mask_share = 0.15;    ///< masked_lm: share of a line's tokens that are hidden.
};

}  // namespace ddp::train
