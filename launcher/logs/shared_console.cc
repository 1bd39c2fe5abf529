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
    if (is_below(writer, all)) return above(last_, all);
    follow(writer, all);
    return all;
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

// Whether the last line is a bar, on the other stream of the writer of these lines.
bool SharedConsole::is_below(Writer writer, std::string_view text) const {
  return has_last() && last_of_ != writer && last_.starts_with('\r') && text.ends_with('\n') &&
         !text.starts_with('\r');
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
  // Below nested bars the cursor has gone up: a line above the last one would be overwritten.
  if (last_.size() > kLongestLast || last_.find("\x1b[A") != std::string::npos) last_.clear();
  last_of_ = is_visible(last_) ? writer : Writer{-1};
}

std::string SharedConsole::whole_lines(Writer writer, std::string_view text) {
  std::string& held = held_[writer];
  // On a terminal '\r' would overwrite the last line.
  const auto end = terminal_ ? text.rfind('\n') : text.find_last_of("\r\n");
  if (end == std::string_view::npos) {
    held += text;
    // The text before a '\r' would be overwritten at once, unless a '\n' is to follow.
    const auto start = held.rfind('\r', held.size() - 2);
    if (terminal_ && start != std::string::npos) held.erase(0, start);
    return held.size() > kLongestLine ? std::exchange(held, {}) : std::string();
  }
  std::string lines = std::exchange(held, std::string(text.substr(end + 1)));
  return lines += text.substr(0, end + 1);
}

}  // namespace ddp::launch
