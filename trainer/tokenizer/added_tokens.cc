#include "trainer/tokenizer/added_tokens.h"

#include <algorithm>

namespace ddp::train {

void AddedTokens::Finder::add(const AddedToken& token) {
  const auto longer = [&token](const AddedToken& other) {
    return other.content.size() < token.content.size();
  };
  tokens_.insert(std::find_if(tokens_.begin(), tokens_.end(), longer), token);
  first_bytes_[static_cast<unsigned char>(token.content.front())] = true;
}

std::size_t AddedTokens::Finder::next_start(std::string_view text, std::size_t at) const {
  if (tokens_.size() == 1) return text.find(tokens_.front().content, at);
  while (at < text.size() && !first_bytes_[static_cast<unsigned char>(text[at])]) ++at;
  return at < text.size() ? at : std::string_view::npos;
}

std::optional<AddedTokens::Finder::Found> AddedTokens::Finder::find(std::string_view text) const {
  for (std::size_t at = next_start(text, 0); at != std::string_view::npos;
       at = next_start(text, at + 1)) {
    for (const AddedToken& token : tokens_) {
      if (text.substr(at).starts_with(token.content)) return Found{at, &token};
    }
  }
  return std::nullopt;
}

AddedTokens::AddedTokens(const std::vector<AddedToken>& tokens) {
  for (const AddedToken& token : tokens) (token.normalized ? second_ : first_).add(token);
}

void AddedTokens::split_by(const Finder& finder, std::string_view text, const OnText& on_text,
                           const OnToken& on_token) {
  while (!finder.empty()) {
    const auto found = finder.find(text);
    if (!found) break;
    if (found->at > 0) on_text(text.substr(0, found->at));
    on_token(found->token->id);
    text.remove_prefix(found->at + found->token->content.size());
  }
  if (!text.empty()) on_text(text);
}

void AddedTokens::split(std::string_view text, const OnText& on_text,
                        const OnToken& on_token) const {
  split_by(
      first_, text,
      [&](std::string_view between) { split_by(second_, between, on_text, on_token); }, on_token);
}

bool AddedTokens::lies_across(std::string_view text, std::size_t at) const {
  const auto crosses = [&](const AddedToken& token) {
    const std::size_t back = std::min(at, token.content.size() - 1);
    for (std::size_t start = at - back; start < at; ++start) {
      if (text.substr(start).starts_with(token.content)) return true;
    }
    return false;
  };
  return std::any_of(first_.tokens().begin(), first_.tokens().end(), crosses) ||
         std::any_of(second_.tokens().begin(), second_.tokens().end(), crosses);
}

std::size_t AddedTokens::longest() const {
  std::size_t most = 0;
  for (const Finder* finder : {&first_, &second_}) {
    if (!finder->empty()) most = std::max(most, finder->tokens().front().content.size());
  }
  return most;
}

}  // namespace ddp::train
