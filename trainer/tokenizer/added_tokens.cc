#include "trainer/tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include "trainer/tokenizer/word_splitter.h"

namespace ddp::train {

namespace {

/// In normalized text, or in the text itself.
std::vector<AddedToken> looked_for(const std::vector<AddedToken>& tokens, bool normalized,
                                   const AddedTokens::Normalize& normalize) {
  std::vector<AddedToken> found;
  for (AddedToken token : tokens) {
    if (token.normalized != normalized) continue;
    if (normalized && normalize) token.content = normalize(token.content);
    found.push_back(std::move(token));
  }
  return found;
}

}  // namespace

AddedTokens::Finder::Finder(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::ranges::stable_sort(tokens_, {}, &AddedToken::content);
  for (const AddedToken& token : tokens_) {
    first_bytes_[static_cast<unsigned char>(token.content.front())] = true;
    longest_ = std::max(longest_, token.content.size());
    strips_after_ = strips_after_ || token.rstrip;
  }
}

const AddedToken* AddedTokens::Finder::first_of(std::string_view text) const {
  const AddedToken* found = nullptr;
  auto first = tokens_.begin();
  auto last = tokens_.end();
  // Those between agree with the text before `at`.
  for (std::size_t at = 0; at < text.size() && first != last; ++at) {
    const auto byte_of = [at](const AddedToken& token) {
      return at < token.content.size() ? static_cast<unsigned char>(token.content[at]) : -1;
    };
    const auto same = std::ranges::equal_range(first, last, static_cast<unsigned char>(text[at]),
                                               std::less<int>(), byte_of);
    first = same.begin();
    last = same.end();
    if (first != last && first->content.size() == at + 1) found = &*first;
  }
  return found;
}

std::size_t AddedTokens::Finder::next_start(std::string_view text, std::size_t at) const {
  if (tokens_.size() == 1) return text.find(tokens_.front().content, at);
  while (at < text.size() && !first_bytes_[static_cast<unsigned char>(text[at])]) ++at;
  return at < text.size() ? at : std::string_view::npos;
}

std::optional<AddedTokens::Finder::Found> AddedTokens::Finder::find(std::string_view text) const {
  for (std::size_t at = next_start(text, 0); at != std::string_view::npos;
       at = next_start(text, at + 1)) {
    if (const AddedToken* token = first_of(text.substr(at))) return Found{at, token};
  }
  return std::nullopt;
}

AddedTokens::AddedTokens(const std::vector<AddedToken>& tokens, Normalize normalize)
    : normalize_(std::move(normalize)),
      first_(looked_for(tokens, false, normalize_)),
      second_(looked_for(tokens, true, normalize_)) {}

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
  const auto crosses = [&](const Finder& finder) {
    if (finder.strips_after() && space) return true;
    const std::size_t back = std::min(at, std::max<std::size_t>(1, finder.longest()) - 1);
    for (std::size_t start = at - back; start < at; ++start) {
      const AddedToken* token = finder.first_of(text.substr(start));
      if (token != nullptr && start + token->content.size() > at) return true;
    }
    return false;
  };
  return !crosses(first_) && !crosses(second_);
}

std::size_t AddedTokens::longest() const { return std::max(first_.longest(), second_.longest()); }

}  // namespace ddp::train
