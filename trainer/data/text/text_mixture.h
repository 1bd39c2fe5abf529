// The training and evaluation data of a language model: data_config.path, or a mixture of
// data_config.sources.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/config/data_config.h"
#include "trainer/data/mixed_samples.h"
#include "trainer/data/text/text_dataset.h"
#include "trainer/data/tokens/token_windows.h"
#include "trainer/tokenizer/tokenizer.h"

namespace ddp::train {

class TextMixture {
 public:
  /// As TextDataset's. All sources share the tokenizer: that of `tokenizer` (of a snapshot), of
  /// data_config.tokenizer, or of the first source's files of tokens. `seed`: of the order in which
  /// sources are traversed. Throws UserError.
  TextMixture(const DataConfig& config, std::unique_ptr<Tokenizer> tokenizer, int64_t batch_size,
              uint64_t seed);

  const Tokenizer& tokenizer() const { return parts_.front()->tokenizer(); }
  const SampleSource& training() const;
  /// Windows of all sources, or of data_config.eval_path; empty if there are none.
  const SampleSource& evaluation() const;
  int64_t evaluation_tokens() const;
  /// One for data_config.path, else one for each source.
  const std::vector<std::unique_ptr<TextDataset>>& parts() const { return parts_; }
  /// Null where there is one part.
  const MixedSamples<TokenWindows>* mixed() const { return mixed_.get(); }

 private:
  void open_sources(const DataConfig& config, std::unique_ptr<Tokenizer> tokenizer);
  void mix(const DataConfig& config, uint64_t seed);

  std::vector<std::unique_ptr<TextDataset>> parts_;
  std::unique_ptr<MixedSamples<TokenWindows>> mixed_;
  std::unique_ptr<SampleSource> joined_;  // null: the evaluation data are those of the first part
};

}  // namespace ddp::train
