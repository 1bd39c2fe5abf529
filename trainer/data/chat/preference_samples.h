// Reads pairs of answers to one prompt in TRL's forms, and makes samples of them.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trainer/data/chat/chat_template.h"
#include "trainer/data/left_out.h"
#include "trainer/data/length_counts.h"
#include "trainer/data/sample_source.h"
#include "trainer/tokenizer/tokenizer.h"

namespace ddp::train {

/// A prompt with each of two answers.
struct EncodedPair {
  std::vector<int32_t> chosen;    ///< The prompt and the better answer.
  std::vector<int32_t> rejected;  ///< The prompt and the other one.
  std::size_t prompt = 0;         ///< Tokens of the prompt, with which both begin.
};

struct EncodedPairs {
  std::vector<EncodedPair> pairs;
  int64_t conversations = 0;  ///< How many of them are lists of messages.
};

/// Reads and encodes `path`: see read_chat_rows(). A row has
/// - `prompt`, `chosen` and `rejected`, texts: each answer ends with the end-of-text token;
/// - the same as lists of messages, or a list and two answers, rendered by `chat` (null: there is
///   none); `conversations` is another name of the prompt;
/// - `chosen` and `rejected` without a list as the prompt: what both begin with is the prompt.
/// The tokens are those of TRL's DPOTrainer: an answer begins where its tokens differ from the
/// prompt's own. Unusable rows go to `left_out`. Throws UserError.
EncodedPairs read_pairs(const std::string& path, const Tokenizer& tokenizer,
                        const ChatTemplate* chat, LeftOut& left_out);

inline constexpr const char* kAnswerLengths = "answer_lengths";  ///< float32 [2B], tokens.
/// float32 [B, 2]: PairSamples::reference() of the pairs.
inline constexpr const char* kReference = "reference";
/// float32 [M]: 1 for a token of an answer, 0 for one of a prompt; only with its targets.
inline constexpr const char* kOfAnswer = "of_answer";

struct PairCounts {
  int64_t pairs = 0;
  int64_t truncated = 0;       ///< Answers that were longer: cut at their end.
  int64_t cut_tokens = 0;      ///< Tokens that the cut removed.
  int64_t without_answer = 0;  ///< Pairs left out: the prompt alone is too long.
  LengthCounts lengths;        ///< Prompt and answer, tokens, before the cut.
};

/// A sample is a pair. A batch of B has 2B rows, all chosen answers and then all rejected ones,
/// padded at their ends to the longest: kInputs int64 [2B, T]. Targets are the answers' tokens:
/// kTargets [M] and kTargetPositions [M], in order. target_count is the number of pairs.
class PairSamples : public SampleSource {
 public:
  /// Sequences have at most `block_size` + 1 tokens. `with_prompts`: those of chosen answers'
  /// prompts are targets, too.
  PairSamples(std::vector<EncodedPair> pairs, int64_t block_size, bool with_prompts);

  int64_t size() const override { return static_cast<int64_t>(pairs_.size()); }
  Batch collate(const BatchRequest& request) const override;
  TargetCount targets() const override { return {1, /*always=*/true}; }
  const std::string& fingerprint() const override { return fingerprint_; }

  const PairCounts& counts() const { return counts_; }
  const std::vector<EncodedPair>& pairs() const { return pairs_; }
  /// Log-probabilities of the chosen and the rejected answers by the reference model, float32
  /// [size(), 2]; zeros until they are written, which must precede the first batch that needs them.
  const torch::Tensor& reference() const { return reference_; }

 private:
  std::vector<EncodedPair> pairs_;
  bool with_prompts_;
  PairCounts counts_;
  torch::Tensor reference_;
  std::string fingerprint_;
};

}  // namespace ddp::train
