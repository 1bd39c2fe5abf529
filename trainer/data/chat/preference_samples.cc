#include "trainer/data/chat/preference_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "trainer/data/chat/conversations.h"
#include "trainer/data/rows.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/sha256.h"

namespace ddp::train {
namespace {

using PairJson = nlohmann::ordered_json;
using Messages = std::vector<ChatMessage>;

template <class Sequence>
std::size_t equal_start(const Sequence& a, const Sequence& b) {
  const auto end = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first;
  return static_cast<std::size_t>(end - a.begin());
}

/// Something is left of both.
template <class Sequence>
std::size_t shared_prompt(const Sequence& chosen, const Sequence& rejected) {
  const std::size_t most = std::min(chosen.size(), rejected.size());
  return most == 0 ? 0 : std::min(equal_start(chosen, rejected), most - 1);
}

EncodedPair pair_of(const std::vector<int32_t>& prompt, std::vector<int32_t> chosen,
                    std::vector<int32_t> rejected) {
  const std::size_t shared = std::min(equal_start(prompt, chosen), equal_start(prompt, rejected));
  if (chosen.size() == shared || rejected.size() == shared)
    throw UserError(fmt::format("'{}' adds no tokens to the prompt; remove the pair",
                                chosen.size() == shared ? "chosen" : "rejected"));
  return {std::move(chosen), std::move(rejected), shared};
}

class PairEncoder {
 public:
  PairEncoder(const Tokenizer& tokenizer, const ChatTemplate* chat)
      : tokenizer_(tokenizer), chat_(chat) {}

  EncodedPair texts(const PairJson& row, const PairJson& prompt) const {
    std::string chosen = row["chosen"], rejected = row["rejected"], before;
    if (prompt.is_string()) {
      before = prompt;
    } else {
      std::size_t shared = shared_prompt(chosen, rejected);
      while (shared > 0 && (static_cast<unsigned char>(chosen[shared]) & 0xC0U) == 0x80U) --shared;
      if (shared > 0 && chosen[shared - 1] == ' ') --shared;  // belongs to the word after it
      before = chosen.substr(0, shared);
      chosen.erase(0, shared);
      rejected.erase(0, shared);
    }
    return pair_of(encode(before), ended(before + chosen), ended(before + rejected));
  }

  EncodedPair chats(const PairJson& row, const PairJson& prompt) const {
    if (chat_ == nullptr)
      throw UserError(
          "has messages, and the tokenizer's folder has no chat template; put one there as "
          "chat_template.jinja, or name another folder as data_config.tokenizer");
    Messages chosen = messages(row, "chosen"), rejected = messages(row, "rejected"), before;
    if (prompt.is_array()) {
      before = chat_messages(prompt);
    } else {
      const auto shared = static_cast<std::ptrdiff_t>(shared_prompt(chosen, rejected));
      before.assign(chosen.begin(), chosen.begin() + shared);
      chosen.erase(chosen.begin(), chosen.begin() + shared);
      rejected.erase(rejected.begin(), rejected.begin() + shared);
    }
    const std::string tools = chat_tools(row);
    if (!tools.empty() && !chat_->names("tools"))
      throw UserError("has 'tools', which the chat template does not write; remove them");
    return pair_of(rendered(before, {}, tools, /*answer_next=*/true),
                   rendered(before, chosen, tools, false),
                   rendered(before, rejected, tools, false));
  }

 private:
  static Messages messages(const PairJson& row, const char* key) {
    const PairJson& value = row[key];
    if (value.is_string()) return {{kAssistantRole, value}};
    return chat_messages(value.is_object() ? PairJson::array({value}) : value);
  }
  std::vector<int32_t> rendered(Messages all, const Messages& answer, const std::string& tools,
                                bool answer_next) const {
    all.insert(all.end(), answer.begin(), answer.end());
    return tokenizer_.encode(chat_->render(all, answer_next, tools).text);
  }
  std::vector<int32_t> encode(const std::string& text) const {
    std::vector<int32_t> tokens = tokenizer_.beginning();
    const auto own = tokenizer_.encode(text);
    tokens.insert(tokens.end(), own.begin(), own.end());
    return tokens;
  }
  std::vector<int32_t> ended(const std::string& text) const {
    auto tokens = encode(text);
    const auto end = tokenizer_.end_of_text();
    if (end && (tokens.empty() || tokens.back() != *end)) tokens.push_back(*end);
    return tokens;
  }

  const Tokenizer& tokenizer_;
  const ChatTemplate* chat_;
};

const PairJson& prompt_in(const PairJson& row) {
  static const PairJson kNone;
  for (const char* key : {"prompt", "conversations", "messages"})
    if (row.contains(key) && !row[key].is_null()) return row[key];
  return kNone;
}

std::string digest_of_pairs(const std::vector<EncodedPair>& pairs, bool with_prompts) {
  Sha256 sum;
  sum.update(fmt::format("pairs {}", with_prompts));
  for (const EncodedPair& pair : pairs) {
    sum.update(fmt::format("{} {} {}", pair.prompt, pair.chosen.size(), pair.rejected.size()));
    for (const auto* tokens : {&pair.chosen, &pair.rejected})
      sum.update(tokens->data(), tokens->size() * sizeof(int32_t));
  }
  return sum.hex();
}

/// The rows of a batch, one after the other.
struct PairRows {
  std::vector<int64_t> targets;
  std::vector<int64_t> positions;
  std::vector<float> of_answer;
  std::vector<float> lengths;

  void add(std::span<int64_t> inputs, std::size_t row, const std::vector<int32_t>& tokens,
           std::size_t prompt, bool with_prompt) {
    std::ranges::fill(inputs, 0);
    for (std::size_t t = 0; t + 1 < tokens.size(); ++t) {
      inputs[t] = tokens[t];
      const bool of_prompt = t + 1 < prompt;
      if (of_prompt && !with_prompt) continue;
      targets.push_back(tokens[t + 1]);
      positions.push_back(static_cast<int64_t>(row * inputs.size() + t));
      of_answer.push_back(of_prompt ? 0.0F : 1.0F);
    }
    lengths.push_back(static_cast<float>(tokens.size() - prompt));
  }
};

}  // namespace

EncodedPairs read_pairs(const std::string& path, const Tokenizer& tokenizer,
                        const ChatTemplate* chat, LeftOut& left_out) {
  EncodedPairs all;
  const PairEncoder encoder(tokenizer, chat);
  read_chat_rows(path, left_out, [&](const PairJson& row, const std::string& /*place*/) {
    for (const char* key : {"chosen", "rejected"}) {
      const bool given = row.is_object() && row.contains(key);
      if (given && (row[key].is_string() || row[key].is_structured())) continue;
      throw UserError(fmt::format(
          "'{}' is {}; write {{\"prompt\": ..., \"chosen\": ..., \"rejected\": ...}}, as texts or "
          "as lists of messages",
          key, given ? "no text and no list of messages" : "missing"));
    }
    const PairJson& prompt = prompt_in(row);
    const bool texts = row["chosen"].is_string() && row["rejected"].is_string();
    const bool chats = !texts || prompt.is_array();
    all.pairs.push_back(chats ? encoder.chats(row, prompt) : encoder.texts(row, prompt));
    if (chats) ++all.conversations;
  });
  if (all.pairs.empty())
    throw UserError(path +
                    ": holds no pairs; write one JSON object per line with prompt, chosen "
                    "and rejected" +
                    (left_out.count() == 0 ? "" : "; " + left_out.text()));
  return all;
}

PairSamples::PairSamples(std::vector<EncodedPair> pairs, int64_t block_size, bool with_prompts)
    : with_prompts_(with_prompts) {
  const auto most = static_cast<std::size_t>(block_size + 1);
  counts_.pairs = std::ssize(pairs);
  for (EncodedPair& pair : pairs) {
    for (const auto* tokens : {&pair.chosen, &pair.rejected})
      counts_.lengths.add(std::ssize(*tokens));
    if (pair.prompt >= most) {
      ++counts_.without_answer;
      continue;
    }
    for (auto* tokens : {&pair.chosen, &pair.rejected}) {
      if (tokens->size() <= most) continue;
      ++counts_.truncated;
      counts_.cut_tokens += static_cast<int64_t>(tokens->size() - most);
      tokens->resize(most);
    }
    pairs_.push_back(std::move(pair));
  }
  reference_ = torch::zeros({size(), 2});
  fingerprint_ = digest_of_pairs(pairs_, with_prompts_);
}

Batch PairSamples::collate(const BatchRequest& request) const {
  const std::size_t count = request.samples.size();
  const auto pair_of_row = [&](std::size_t row) -> const EncodedPair& {
    return pairs_[static_cast<std::size_t>(request.samples[row % count])];
  };
  const auto tokens_of_row = [&](std::size_t row) -> const std::vector<int32_t>& {
    return row < count ? pair_of_row(row).chosen : pair_of_row(row).rejected;
  };
  std::size_t longest = 2;
  for (std::size_t row = 0; row < 2 * count; ++row)
    longest = std::max(longest, tokens_of_row(row).size());
  Rows<int64_t> inputs(2 * count, {static_cast<int64_t>(longest - 1)}, request.pinned);
  Rows<float> reference(count, {2}, request.pinned);
  PairRows rows;
  for (std::size_t row = 0; row < 2 * count; ++row)
    rows.add(inputs[row], row, tokens_of_row(row), pair_of_row(row).prompt,
             with_prompts_ && row < count);
  const float* known = reference_.const_data_ptr<float>();
  for (std::size_t row = 0; row < count; ++row)
    std::copy_n(known + 2 * request.samples[row], 2, reference[row].begin());
  Batch batch{{{kInputs, inputs.tensor()},
               {kTargets, tensor_of<int64_t>(rows.targets, request.pinned)},
               {kTargetPositions, tensor_of<int64_t>(rows.positions, request.pinned)},
               {kAnswerLengths, tensor_of<float>(rows.lengths, request.pinned)},
               {kReference, reference.tensor()}},
              static_cast<int64_t>(count)};
  if (with_prompts_) batch.tensors[kOfAnswer] = tensor_of<float>(rows.of_answer, request.pinned);
  return batch;
}

}  // namespace ddp::train
