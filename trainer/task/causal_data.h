// The interface to the training and evaluation data of a language model: texts or
// conversations.
#pragma once

#include <cstdint>
#include <ctime>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/data/chat/chat_template_file.h"
#include "trainer/data/length_counts.h"
#include "trainer/data/sample_source.h"
#include "trainer/tokenizer/tokenizer.h"

namespace ddp::train {

/// The metadata of the snapshot that a run resumes or starts from; null if there is none.
using SnapshotMetadata = std::map<std::string, std::string>;

class CausalData {
 public:
  virtual ~CausalData() = default;

  virtual const Tokenizer& tokenizer() const = 0;
  virtual const SampleSource& training() const = 0;
  /// Empty if there is none.
  virtual const SampleSource& evaluation() const = 0;
  /// All of `path` for evaluation, with the same tokenizer; `key`: what messages call it. It does
  /// not refer to this object. Throws UserError.
  virtual std::shared_ptr<const SampleSource> open_whole(const std::string& path,
                                                         const std::string& key) const = 0;
  /// The beginning of a sample of the model's text: `text` or, if empty, the beginning of the
  /// evaluation or training data; at least one token. Throws UserError if it cannot be encoded.
  virtual std::vector<int32_t> sample_prompt(const std::string& text) const = 0;
  /// The token that ends such a sample, if there is one.
  virtual std::optional<int32_t> sample_end() const = 0;
  /// For the start of the log, one line for each.
  virtual std::vector<std::string> describe() const = 0;
  /// The lengths of training documents or conversations, in tokens, before they were cut.
  virtual LengthCounts lengths() const = 0;
  /// The data that a resumed run needs to make the same samples.
  virtual SnapshotMetadata metadata() const { return {}; }
  /// Options to try a trained model: they follow `trainer generate --snapshot `.
  virtual std::string prompt_options() const = 0;
};

/// Texts and tokens. `resumes`: `of_snapshot` has the tokens of data_config.add_tokens. Throws
/// UserError, as TextMixture's constructor.
std::unique_ptr<CausalData> open_text_data(const Config& config,
                                           std::unique_ptr<Tokenizer> of_snapshot, bool resumes);
/// Conversations; the tokenizer and the chat template are those of data_config.tokenizer, else of
/// `snapshot`, else of the folder of init_from. Throws UserError.
std::unique_ptr<CausalData> open_chat_data(const Config& config, const SnapshotMetadata* snapshot);

/// Pairs of answers; the tokenizer and the chat template are from the same places. Throws
/// UserError.
std::unique_ptr<CausalData> open_preference_data(const Config& config,
                                                 const SnapshotMetadata* snapshot);

/// How many of the conversations or pairs of a file are used, and how many of these for training.
struct LeadingParts {
  std::size_t used = 0, training = 0;
};
/// At least one each, unless train_split is 0.
LeadingParts leading_parts(const DataConfig& data, std::size_t count);

/// What conversations are encoded with.
struct ChatTools {
  std::unique_ptr<Tokenizer> tokenizer;
  std::optional<ChatTemplateText> text;  ///< The chat template's; nullopt: there is none.
  std::time_t now = 0;                   ///< See ChatTemplate: when the run began.
};
/// Opens what open_chat_data() encodes with. Throws UserError: no tokenizer.
ChatTools open_chat_tools(const Config& config, const SnapshotMetadata* snapshot);
/// The metadata from which a resumed run knows `chat.now()`.
SnapshotMetadata chat_time_metadata(const ChatTemplate& chat);

/// Metadata key of a model's chat template: chat_template_state().
inline constexpr const char* kChatTemplate = "chat_template";

/// kChatTemplate of the model that `config` trains, from the same places as open_chat_data()'s; ""
/// if it has none.
std::string chat_template_of(const Config& config, const SnapshotMetadata* snapshot);

}  // namespace ddp::train
