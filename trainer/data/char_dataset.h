// A text, encoded once, split by position and only then cut into windows: no evaluation text is
// ever trained on.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/data/char_vocabulary.h"

namespace ddp::train {

/// Training windows: sample i is tokens [i * stride, i * stride + block_size] (one more than
/// block_size: the targets are the inputs shifted by one).
struct TrainingWindows {
  std::span<const int32_t> tokens;
  int64_t block_size = 0;
  int64_t stride = 1;

  int64_t size() const;
};

/// Evaluation windows: each token of the part but the first is the target exactly once; the last
/// window may be shorter.
struct EvaluationWindows {
  std::span<const int32_t> tokens;
  int64_t block_size = 0;

  int64_t size() const;
};

class CharDataset {
 public:
  /// Reads and encodes config.path. With `vocabulary` (of a snapshot) that one is used, otherwise
  /// the text's own. Throws UserError: not readable, not UTF-8, training part shorter than
  /// block_size + 1.
  explicit CharDataset(const DataConfig& config, const CharVocabulary* vocabulary = nullptr);

  const CharVocabulary& vocabulary() const { return vocabulary_; }
  /// SHA-256 of the text used, after truncation.
  const std::string& sha256() const { return sha256_; }
  int64_t tokens() const { return static_cast<int64_t>(tokens_.size()); }
  /// Characters of the whole file, of which data_config.truncate leaves tokens().
  int64_t characters_in_file() const { return characters_in_file_; }

  TrainingWindows training() const;
  /// Empty when train_split is 1 or fewer than two tokens are left.
  EvaluationWindows evaluation() const;

 private:
  DataConfig config_;
  CharVocabulary vocabulary_;
  std::vector<int32_t> tokens_;
  int64_t characters_in_file_ = 0;
  std::size_t split_ = 0;
  std::string sha256_;
};

}  // namespace ddp::train
