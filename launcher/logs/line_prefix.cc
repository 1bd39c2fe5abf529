#include "launcher/logs/line_prefix.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <ctime>
#include <iterator>

namespace ddp::launch {
namespace {

bool begins_name(char c) { return c == '_' || std::isalpha(static_cast<unsigned char>(c)) != 0; }
bool in_name(char c) { return c == '_' || std::isalnum(static_cast<unsigned char>(c)) != 0; }

struct Macro {
  std::string_view name;
  std::size_t length = 0;  // including dollar and braces; 0: none
};

// `text` begins with a dollar.
Macro macro_at(std::string_view text) {
  const bool braces = text.size() > 1 && text[1] == '{';
  const std::size_t begin = braces ? 2 : 1;
  if (begin >= text.size() || !begins_name(text[begin])) return {};
  std::size_t end = begin;
  while (end < text.size() && in_name(text[end])) ++end;
  if (braces && (end == text.size() || text[end] != '}')) return {};
  return {text.substr(begin, end - begin), end + (braces ? 1 : 0)};
}

}  // namespace

LinePrefix::LinePrefix(std::string_view text, const PrefixPlace& place)
    : first_rank_(place.rank - place.local_rank) {
  while (!text.empty()) {
    const auto dollar = std::min(text.find('$'), text.size());
    add_text(text.substr(0, dollar));
    text.remove_prefix(dollar);
    if (text.empty()) break;
    const Macro macro = macro_at(text);
    if (macro.length > 0) {
      add_macro(macro.name, text.substr(0, macro.length), place);
      text.remove_prefix(macro.length);
    } else {
      add_text("$");
      text.remove_prefix(text.substr(0, 2) == "$$" ? 2 : 1);
    }
  }
}

void LinePrefix::add_text(std::string_view text) {
  if (pieces_.empty() || pieces_.back().kind != Kind::kText) pieces_.push_back({Kind::kText, ""});
  pieces_.back().text += text;
}

void LinePrefix::add_macro(std::string_view name, std::string_view whole,
                           const PrefixPlace& place) {
  if (name == "role_name") {
    add_text(place.role);
  } else if (name == "hostname") {
    add_text(std::string_view(place.host).substr(0, place.host.find('.')));
  } else if (name == "local_rank") {
    pieces_.push_back({Kind::kLocalRankMacro, ""});
  } else if (name == "rank") {
    pieces_.push_back({Kind::kRankMacro, ""});
  } else if (name == "time") {
    pieces_.push_back({Kind::kTimeMacro, ""});
    has_time_ = true;
  } else {
    add_text(whole);
  }
}

void LinePrefix::append_to(std::string& out, std::span<const int> local_ranks, Time now) const {
  for (const Piece& piece : pieces_) {
    switch (piece.kind) {
      case Kind::kText:
        out += piece.text;
        break;
      case Kind::kLocalRankMacro:
        append_ranks(out, local_ranks, 0);
        break;
      case Kind::kRankMacro:
        append_ranks(out, local_ranks, first_rank_);
        break;
      case Kind::kTimeMacro:
        append_time(out, now);
        break;
    }
  }
}

void append_ranks(std::string& out, std::span<const int> ranks, int offset) {
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (i > 0) out += ',';
    fmt::format_to(std::back_inserter(out), "{}", ranks[i] + offset);
    if (last > i) fmt::format_to(std::back_inserter(out), "-{}", ranks[last] + offset);
    i = last + 1;
  }
}

void append_time(std::string& out, LinePrefix::Time time) {
  const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch());
  const std::time_t seconds = since.count() / 1000;
  // localtime_r takes a lock and reads the time zone rules: once a second is enough.
  thread_local std::time_t known = -1;
  thread_local std::tm parts{};
  if (seconds != known) ::localtime_r(&seconds, &parts);
  known = seconds;
  fmt::format_to(std::back_inserter(out), "{:04}-{:02}-{:02} {:02}:{:02}:{:02}.{:03}",
                 parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min,
                 parts.tm_sec, since.count() % 1000);
}

}  // namespace ddp::launch
