// Conversations as the data of a language model.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <optional>
#include <span>
#include <utility>

#include "trainer/config/add_tokens.h"
#include "trainer/data/chat/chat_encoding.h"
#include "trainer/data/chat/chat_samples.h"
#include "trainer/data/chat/chat_template_file.h"
#include "trainer/data/chat/conversations.h"
#include "trainer/data/mixed_samples.h"
#include "trainer/model/causal_architecture.h"
#include "trainer/model/pretrained_config.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/with_key.h"
#include "trainer/task/causal_data.h"
#include "trainer/task/causal_lm.h"
#include "trainer/tokenizer/tokenizer_folder.h"
#include "trainer/tokenizer/with_added_tokens.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTokenizerKey = "data_config.tokenizer";
constexpr const char* kPath = "data_config.path";
constexpr const char* kEvalPath = "data_config.eval_path";
constexpr const char* kSources = "data_config.sources";
constexpr const char* kChatTime = "chat_time";  // in a snapshot's metadata: seconds since 1970

/// What both the tokenizer and the chat template come from: a folder, or else a snapshot.
struct ChatOrigin {
  std::string path;  ///< As load_tokenizer() takes it; empty: the snapshot's.
  std::string key;   ///< That names the path.
  std::optional<SnapshotMetadata> snapshot{};
  bool resumes = false;  ///< So that its tokenizer has the tokens of data_config.add_tokens.

  bool is_folder() const { return !path.empty(); }
};

ChatOrigin chat_origin(const Config& config, const SnapshotMetadata* resumed) {
  const CausalArchitecture& architecture = causal_architecture(config);
  const std::string pretrained = architecture.pretrained(config);
  const std::string& named = config.data.tokenizer;
  std::error_code ignored;
  const bool from_folder = fs::is_directory(pretrained, ignored);
  const bool names_snapshot = !named.empty() && !pretrained.empty() && !from_folder &&
                              fs::absolute(named).lexically_normal() == pretrained;
  if (!named.empty() && !names_snapshot) return {named, kTokenizerKey};
  if (resumed != nullptr) return {"", "", *resumed, true};
  if (pretrained.empty()) return {};
  if (from_folder) return {pretrained, architecture.huggingface_layout()->key};
  return {"", "", causal_snapshot_metadata(pretrained)};
}

std::optional<ChatTemplateText> template_at(const ChatOrigin& origin) {
  if (origin.is_folder()) {
    std::error_code ignored;
    const fs::path place(origin.path);
    return read_chat_template(fs::is_directory(place, ignored) ? place : place.parent_path());
  }
  if (!origin.snapshot || !origin.snapshot->contains(kChatTemplate)) return std::nullopt;
  return chat_template_from_state(origin.snapshot->at(kChatTemplate));
}

bool has_no_special_tokens(const std::string& tokenizer) {
  return tokenizer == "char" || tokenizer == "byte";
}

std::unique_ptr<Tokenizer> tokenizer_at(const ChatOrigin& origin, const Config& config) {
  if (has_no_special_tokens(origin.path) || (!origin.is_folder() && !origin.snapshot)) {
    throw UserError(
        fmt::format("{}: {}, and conversations need a folder with a tokenizer and a chat template",
                    kTokenizerKey, origin.path.empty() ? "is not given" : "is " + origin.path));
  }
  if (origin.resumes) return tokenizer_of(*origin.snapshot);
  return with_added_tokens(
      origin.snapshot ? tokenizer_of(*origin.snapshot) : load_tokenizer(origin.key, origin.path),
      add_tokens(config));
}

/// When the run began that is resumed, as its template may write the date; 0: now.
std::time_t chat_time(const SnapshotMetadata* resumed) {
  if (resumed == nullptr || !resumed->contains(kChatTime)) return 0;
  return static_cast<std::time_t>(std::strtoll(resumed->at(kChatTime).c_str(), nullptr, 10));
}

ChatTemplateText require_template(const ChatOrigin& origin) {
  if (auto text = template_at(origin)) return *std::move(text);
  if (!origin.is_folder()) {
    throw UserError(fmt::format(
        "{}: the snapshot has no chat template; name the folder of a tokenizer that has one",
        kTokenizerKey));
  }
  throw UserError(fmt::format(
      "{}: {}: has no chat template; put one there as chat_template.jinja, such as that of the "
      "instruction-tuned model, or name another folder as {}",
      origin.key, origin.path, kTokenizerKey));
}

/// "; 3 truncated to data_config.block_size + 1 = 129 tokens (57 tokens cut), 1 left out ..."
std::string losses_of(const ChatCounts& counts, int64_t block_size) {
  std::string text;
  if (counts.truncated > 0) {
    text += fmt::format("; {} truncated to data_config.block_size + 1 = {} tokens ({} tokens cut)",
                        counts.truncated, block_size + 1, counts.cut_tokens);
  }
  if (counts.without_target > 0)
    text += fmt::format("; {} left out: no target {}", counts.without_target,
                        counts.truncated > 0 ? "is left" : "in them");
  return text;
}

class ChatData : public CausalData {
 public:
  ChatData(const Config& config, const ChatOrigin& origin, std::time_t now)
      : config_(config),
        tokenizer_(tokenizer_at(origin, config)),
        template_(parse_chat_template(require_template(origin), now)),
        encoder_(make_encoder(origin)),
        left_out_(config.data.on_bad_sample) {
    open();
  }

  const Tokenizer& tokenizer() const override { return *tokenizer_; }
  const SampleSource& training() const override {
    if (mixed_) return *mixed_;
    return parts_.front();
  }
  const SampleSource& evaluation() const override { return evaluation_; }
  std::shared_ptr<const SampleSource> open_whole(const std::string& path,
                                                 const std::string& key) const override;
  std::vector<int32_t> sample_prompt(const std::string& text) const override;
  std::optional<int32_t> sample_end() const override { return encoder_.end_of_turn(); }
  std::vector<std::string> describe() const override;
  LengthCounts lengths() const override {
    LengthCounts all;
    for (const ChatSamples& part : parts_) all.add(part.counts().lengths);
    return all;
  }
  SnapshotMetadata metadata() const override { return chat_time_metadata(template_); }
  std::string prompt_options() const override { return "--chat"; }

 private:
  using Conversations = std::vector<Conversation>;

  ChatEncoder make_encoder(const ChatOrigin& origin) const;
  Conversations read(const std::string& key, const std::string& path) const;
  ChatSamples samples_of(const std::string& key, std::span<const Conversation> chats) const;
  ChatSamples samples_to_evaluate(const std::string& key, const std::string& path) const;
  /// Checks conversations for evaluation.
  void require_targets(const std::string& key, const std::string& path,
                       const ChatSamples& samples) const;
  /// The key of the sources.
  const char* source_key() const { return config_.data.sources.empty() ? kPath : kSources; }
  void open();
  /// Returns what is for evaluation.
  Conversations open_source(const WeightedSource& source);
  void mix();
  void check_targets(const std::string& path, const ChatSamples& samples) const;
  void check_training() const;
  /// "; 3 unusable conversations left out; the first: chats.jsonl:1: ...", or empty.
  std::string left_out() const {
    return left_out_.count() == 0 ? "" : "; " + left_out_.text("conversation");
  }
  std::string describe_part(const char* name, const std::string& path,
                            const ChatSamples& samples) const;

  const Config& config_;
  std::unique_ptr<Tokenizer> tokenizer_;
  ChatTemplate template_;
  ChatEncoder encoder_;
  std::vector<WeightedSource> sources_;
  std::vector<ChatSamples> parts_;                    // one for each source
  std::unique_ptr<MixedSamples<ChatSamples>> mixed_;  // of data_config.sources
  ChatSamples evaluation_;
  mutable LeftOut left_out_;
  mutable ConversationForms forms_;  // of all rows read so far
};

ChatEncoder ChatData::make_encoder(const ChatOrigin& origin) const {
  try {
    ChatEncoder encoder(template_, *tokenizer_);
    if (config_.data.loss_on == LossOn::kAssistant) encoder.check_answers();
    return encoder;
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}: {}", require_template(origin).place, error.what()));
  }
}

ChatData::Conversations ChatData::read(const std::string& key, const std::string& path) const {
  try {
    return read_conversations(path, left_out_, &forms_);
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}: {}{}", key, error.what(), left_out()));
  }
}

ChatSamples ChatData::samples_of(const std::string& key,
                                 std::span<const Conversation> chats) const {
  return with_key(key, [&] {
    return ChatSamples(encode_all(chats, encoder_, config_.data.loss_on, left_out_),
                       config_.data.block_size);
  });
}

ChatSamples ChatData::samples_to_evaluate(const std::string& key, const std::string& path) const {
  ChatSamples samples = samples_of(key, read(key, path));
  require_targets(key, path, samples);
  return samples;
}

void ChatData::require_targets(const std::string& key, const std::string& path,
                               const ChatSamples& samples) const {
  if (samples.size() > 0) return;
  throw UserError(
      fmt::format("{}: {}: no conversation has a target{}; raise data_config.block_size "
                  "or give others{}",
                  key, path, losses_of(samples.counts(), config_.data.block_size), left_out()));
}

void ChatData::open() {
  const DataConfig& data = config_.data;
  sources_ = data.sources;
  if (sources_.empty()) sources_.push_back({data.path, 1.0});
  Conversations held;
  for (const WeightedSource& source : sources_) {
    for (Conversation& each : open_source(source)) held.push_back(std::move(each));
  }
  evaluation_ = data.eval_path.empty() ? samples_of(source_key(), held)
                                       : samples_to_evaluate(kEvalPath, data.eval_path);
  if (data.train_split <= 0.0) return require_targets(kPath, data.path, evaluation_);
  mix();
  check_training();
}

ChatData::Conversations ChatData::open_source(const WeightedSource& source) {
  const DataConfig& data = config_.data;
  const Conversations all = read(source_key(), source.path);
  const auto [used, training] = leading_parts(data, all.size());
  parts_.push_back(samples_of(source_key(), std::span(all).first(training)));
  if (!data.eval_path.empty()) return {};
  const auto held = std::span(all).first(used).subspan(training);
  return {held.begin(), held.end()};
}

void ChatData::mix() {
  std::vector<MixedSamples<ChatSamples>::Part> parts;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    check_targets(sources_[i].path, parts_[i]);
    parts.push_back({&parts_[i], sources_[i].weight});
  }
  if (!config_.data.sources.empty())
    mixed_ = std::make_unique<MixedSamples<ChatSamples>>(
        std::move(parts), static_cast<uint64_t>(config_.trainer.seed));
}

void ChatData::check_targets(const std::string& path, const ChatSamples& samples) const {
  if (samples.size() > 0) return;
  const ChatCounts& counts = samples.counts();
  throw UserError(fmt::format(
      "{}: {}: none of {} conversations has a target{}; raise data_config.block_size, or add "
      "answers{}",
      source_key(), path, counts.conversations, losses_of(counts, config_.data.block_size),
      left_out()));
}

void ChatData::check_training() const {
  const int64_t batch_size = config_.trainer.batch_size;
  if (training().size() >= batch_size) return;
  int64_t conversations = 0;
  std::string paths, lost;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    paths += (i == 0 ? "" : ", ") + sources_[i].path;
    conversations += parts_[i].counts().conversations;
    lost += losses_of(parts_[i].counts(), config_.data.block_size);
  }
  throw UserError(fmt::format(
      "{}: {}: {} training conversations make {} sequences of data_config.block_size={}, fewer "
      "than trainer_config.batch_size={}{}; set trainer_config.batch_size={} or less, or add "
      "conversations{}",
      source_key(), paths, conversations, training().size(), config_.data.block_size, batch_size,
      lost, training().size(), left_out()));
}

std::shared_ptr<const SampleSource> ChatData::open_whole(const std::string& path,
                                                         const std::string& key) const {
  return std::make_shared<ChatSamples>(samples_to_evaluate(key, path));
}

std::vector<int32_t> ChatData::sample_prompt(const std::string& text) const {
  if (!text.empty()) return encoder_.encode_prompt({{"user", text}});
  return (evaluation_.size() > 0 ? evaluation_ : parts_.front()).first_prompt();
}

std::string ChatData::describe_part(const char* name, const std::string& path,
                                    const ChatSamples& samples) const {
  const ChatCounts& counts = samples.counts();
  return fmt::format(
      "{}: {}: {} conversations in {} sequences of {}, {:.0f} % filled; {} targets{}", name, path,
      counts.conversations, samples.size(), config_.data.block_size, 100.0 * samples.filled(),
      counts.targets, losses_of(counts, config_.data.block_size));
}

std::vector<std::string> ChatData::describe() const {
  const DataConfig& data = config_.data;
  std::vector<std::string> lines;
  if (mixed_) {
    lines.push_back(
        fmt::format("Data: {} sources, {} sequences in an epoch", parts_.size(), mixed_->size()));
  }
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    lines.push_back(describe_part(mixed_ ? "Source" : "Data", sources_[i].path, parts_[i]));
    if (mixed_) {
      lines.back() += fmt::format("; weight {}: {} sequences in an epoch", sources_[i].weight,
                                  mixed_->samples_of(i));
    }
  }
  if (evaluation_.counts().conversations > 0) {
    const std::string part = mixed_ ? "the last of each source" : data.path;
    lines.push_back(
        describe_part("Evaluation", data.eval_path.empty() ? part : data.eval_path, evaluation_));
  }
  if (left_out_.count() > 0) lines.push_back("Left out: " + left_out_.text("conversation"));
  std::vector<std::string> forms;
  for (const auto& [form, rows] : forms_)
    forms.push_back(forms_.size() == 1 ? form : fmt::format("{} in {} rows", form, rows));
  lines.push_back(fmt::format("Rows: {}", fmt::join(forms, ", ")));
  lines.push_back(fmt::format("Chat: {} unique tokens; {} ends an assistant's turn; loss on {}",
                              tokenizer_->size(), tokenizer_->decode(encoder_.end_of_turn()),
                              data.loss_on == LossOn::kAll
                                  ? "all tokens"
                                  : "what the assistant says (data_config.loss_on)"));
  return lines;
}

}  // namespace

LeadingParts leading_parts(const DataConfig& data, std::size_t count) {
  const auto leading = [](double share, std::size_t of) {
    const auto part = static_cast<std::size_t>(static_cast<double>(of) * share);
    return std::clamp<std::size_t>(part, 1, of);
  };
  const std::size_t used = leading(data.truncate, count);
  if (data.train_split <= 0.0) return {used, 0};  // as trainer eval does
  return {used, data.eval_path.empty() ? leading(data.train_split, used) : used};
}

std::unique_ptr<CausalData> open_chat_data(const Config& config, const SnapshotMetadata* snapshot) {
  return std::make_unique<ChatData>(config, chat_origin(config, snapshot), chat_time(snapshot));
}

ChatTools open_chat_tools(const Config& config, const SnapshotMetadata* snapshot) {
  const ChatOrigin origin = chat_origin(config, snapshot);
  return {tokenizer_at(origin, config), template_at(origin), chat_time(snapshot)};
}

SnapshotMetadata chat_time_metadata(const ChatTemplate& chat) {
  if (!chat.names("strftime_now")) return {};
  return {{kChatTime, fmt::to_string(chat.now())}};
}

std::string chat_template_of(const Config& config, const SnapshotMetadata* snapshot) {
  const ChatOrigin origin = chat_origin(config, snapshot);
  if (has_no_special_tokens(origin.path)) return "";
  const auto text = template_at(origin);
  return text ? chat_template_state(*text) : "";
}

}  // namespace ddp::train
