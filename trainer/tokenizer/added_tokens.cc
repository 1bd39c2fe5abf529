#include "trainer/tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include "trainer/tokenizer/word_splitter.h"

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

AddedTokens::AddedTokens(const std::vector<AddedToken>& tokens, Normalize normalize)
    : normalize_(std::move(normalize)) {
  for (AddedToken token : tokens) {
    if (!token.normalized) {
      first_.add(token);
      continue;
    }
    if (normalize_) token.content = normalize_(token.content);
    second_.add(token);
  }
}

void AddedTokens::split_by(const Finder& finder, std::string_view text, bool first,
                           const OnText& on_text, const OnToken& on_token) {
  while (!finder.empty()) {
    const auto found = finder.find(text);
    if (!found) break;
    const AddedToken& token = *found->token;
    const std::size_t begin = token.lstrip ? spaces_before(text, found->at) : found->at;
    if (begin > 0) on_text(text.substr(0, begin), first);
    on_token(token.id);
    text.remove_prefix(found->at + token.content.size());
    if (token.rstrip) text.remove_prefix(spaces_after(text));
    first = false;
  }
  if (!text.empty()) on_text(text, first);
}

void AddedTokens::split(std::string_view text, const OnText& on_text,
                        const OnToken& on_token) const {
  split_by(
      first_, text, /*first=*/true,
      [&](std::string_view between, bool first) {
        if (!normalize_) return split_by(second_, between, first, on_text, on_token);
        const std::string normalized = normalize_(between);
        split_by(second_, normalized, first, on_text, on_token);
      },
      on_token);
}

bool AddedTokens::may_cut(std::string_view text, std::size_t at) const {
  const bool space = spaces_after(text.substr(at)) > 0;
  const auto crosses = [&](const AddedToken& token) {
    if (token.rstrip && space) return true;
    const std::size_t back = std::min(at, token.content.size() - 1);
    for (std::size_t start = at - back; start < at; ++start) {
      if (text.substr(start).starts_with(token.content)) return true;
    }
    return false;
  };
  return std::none_of(first_.tokens().begin(), first_.tokens().end(), crosses) &&
         std::none_of(second_.tokens().begin(), second_.tokens().end(), crosses);
}

std::size_t AddedTokens::longest() const {
  std::size_t most = 0;
  for (const Finder* finder : {&first_, &second_}) {
    if (!finder->empty()) most = std::max(most, finder->tokens().front().content.size());
  }
  return most;
}

}  // namespace ddp::train
