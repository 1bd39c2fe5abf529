#include "launcher/logs/shared_console.h"

#include <cstddef>
#include <utility>

namespace ddp::launch {
namespace {

constexpr std::size_t kLongestLine = 16 << 20;  // beyond it a line may be torn
constexpr std::size_t kLongestLast = 4096;
constexpr std::string_view kEraseLine = "\r\x1b[2K";

// Control sequences (ECMA-48: ESC [ ... letter) alone show nothing.
bool is_visible(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b' && i + 1 < text.size() && text[i + 1] == '[') {
      for (i += 2; i < text.size() && (text[i] < '@' || text[i] > '~');) ++i;
    } else if (static_cast<unsigned char>(text[i]) > ' ') {
      return true;
    }
  }
  return false;
}

std::string above(const std::string& last, std::string_view lines) {
  std::string text(kEraseLine);
  text += lines;
  if (!lines.ends_with('\n')) text += '\n';
  return text += last;
}

}  // namespace

std::string SharedConsole::take(Writer writer, std::string_view text) {
  if (terminal_ && (!has_last() || last_of_.local_rank == writer.local_rank)) {
    std::string all = std::exchange(held_[writer], {});
    all += text;
    const bool covers = covers_bar(writer, all);
    if (covers && all.ends_with('\n')) return above(last_, all);
    follow(writer, all);
    return covers ? std::string(kEraseLine) + all : all;
  }
  if (!terminal_ && ranks_.size() < 2) return std::string(text);
  const std::string lines = whole_lines(writer, text);
  return terminal_ && !lines.empty() ? above(last_, lines) : lines;
}

std::string SharedConsole::take_note(std::string_view text) const {
  return has_last() ? above(last_, text) : std::string(text);
}

std::string SharedConsole::leave(Writer writer) {
  std::string rest = std::exchange(held_[writer], {});
  if (has_last() && last_of_.local_rank == writer.local_rank) {
    rest += '\n';  // what comes next begins a line
    last_.clear();
    last_of_ = {-1};
  } else if (has_last() && !rest.empty()) {
    rest = above(last_, rest);
  }
  return rest;
}

// Whether a writer's lines would be appended to a bar on its other stream. Text without a line end
// may be a prompt, which is.
bool SharedConsole::covers_bar(Writer writer, std::string_view text) const {
  return has_last() && last_of_ != writer && last_.starts_with('\r') && !text.starts_with('\r') &&
         text.find('\n') != std::string_view::npos;
}

// The text before a '\r' is about to be overwritten.
void SharedConsole::follow(Writer writer, std::string_view text) {
  if (const auto newline = text.rfind('\n'); newline != std::string_view::npos) {
    last_.clear();
    text.remove_prefix(newline + 1);
  }
  if (const auto start = text.rfind('\r'); start != std::string_view::npos) {
    last_.clear();
    text.remove_prefix(start);
  }
  last_ += text;
  // Below nested bars the cursor has gone up. A line takes the place of the outer bar, which is not
  // drawn again below it, where it would overwrite the inner one.
  const bool nested = last_.find("\x1b[A") != std::string::npos;
  if (last_.size() > kLongestLast || nested) last_.clear();
  last_of_ = nested || is_visible(last_) ? writer : Writer{-1};
}

std::string SharedConsole::whole_lines(Writer writer, std::string_view text) {
  std::string& held = held_[writer];
  // On a terminal '\r' would overwrite the last line.
  const auto end = terminal_ ? text.rfind('\n') : text.find_last_of("\r\n");
  if (end == std::string_view::npos) {
    held += text;
    // The text before a '\r' would be overwritten at once, unless a '\n' is to follow.
    if (terminal_ && text.find('\r') != std::string_view::npos) {
      const auto start = held.rfind('\r', held.size() - 2);
      if (start != std::string::npos) held.erase(0, start);
    }
    return held.size() > kLongestLine ? std::exchange(held, {}) : std::string();
  }
  std::string lines = std::exchange(held, std::string(text.substr(end + 1)));
  return lines += text.substr(0, end + 1);
}

}  // namespace ddp::launch
