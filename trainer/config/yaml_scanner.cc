#include "trainer/config/yaml_scanner.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "trainer/config/message.h"

namespace ddp::train {
namespace {

constexpr std::size_t kDeepestFlow = 1000;
constexpr std::size_t kLongestKey = 1024;

}  // namespace

std::string yaml_token_name(YamlTokenType type) {
  switch (type) {
    case YamlTokenType::kDirective:
      return "'<directive>'";
    case YamlTokenType::kDocumentStart:
      return "'<document start>'";
    case YamlTokenType::kDocumentEnd:
      return "'<document end>'";
    case YamlTokenType::kStreamEnd:
      return "'<stream end>'";
    case YamlTokenType::kBlockSequenceStart:
      return "'<block sequence start>'";
    case YamlTokenType::kBlockMappingStart:
      return "'<block mapping start>'";
    case YamlTokenType::kBlockEnd:
      return "'<block end>'";
    case YamlTokenType::kFlowSequenceStart:
      return "'['";
    case YamlTokenType::kFlowMappingStart:
      return "'{'";
    case YamlTokenType::kFlowSequenceEnd:
      return "']'";
    case YamlTokenType::kFlowMappingEnd:
      return "'}'";
    case YamlTokenType::kBlockEntry:
      return "'-'";
    case YamlTokenType::kFlowEntry:
      return "','";
    case YamlTokenType::kKey:
      return "'?'";
    case YamlTokenType::kValue:
      return "':'";
    case YamlTokenType::kAlias:
      return "'<alias>'";
    case YamlTokenType::kAnchor:
      return "'<anchor>'";
    case YamlTokenType::kTag:
      return "'<tag>'";
    case YamlTokenType::kScalar:
      return "'<scalar>'";
  }
  return "";
}

const YamlToken& YamlScanner::peek() {
  while (needs_more()) fetch_more();
  return tokens_.front();
}

YamlToken YamlScanner::next() {
  peek();
  YamlToken token = std::move(tokens_.front());
  tokens_.pop_front();
  ++tokens_taken_;
  return token;
}

bool YamlScanner::check(std::initializer_list<YamlTokenType> types) {
  return std::find(types.begin(), types.end(), peek().type) != types.end();
}

bool YamlScanner::needs_more() {
  if (done_) return false;
  if (tokens_.empty()) return true;
  drop_stale_keys();
  return next_possible_key() == tokens_taken_;
}

void YamlScanner::fetch_more() {
  skip_to_token();
  drop_stale_keys();
  unwind_indent(text_.column());
  const char32_t c = text_.peek();
  if (c == U'\0') return fetch_stream_end();
  if (text_.column() == 0 && fetch_document_sign(c)) return;
  if (!fetch_sign(c)) fetch_text(c);
}

bool YamlScanner::fetch_document_sign(char32_t c) {
  const bool mark = text_.at_document_mark();
  if (c != U'%' && !mark) return false;
  unwind_indent(-1);
  remove_possible_key();
  allow_simple_key_ = false;
  if (mark) {
    add(c == U'-' ? YamlTokenType::kDocumentStart : YamlTokenType::kDocumentEnd, 3);
  } else {
    tokens_.push_back(scan_directive(text_));
  }
  return true;
}

bool YamlScanner::fetch_sign(char32_t c) {
  const bool in_flow = flow_level() > 0;
  const bool blank_follows = is_yaml_blank(text_.peek(1));
  switch (c) {
    case U'[':
      fetch_flow_start(YamlTokenType::kFlowSequenceStart);
      return true;
    case U'{':
      fetch_flow_start(YamlTokenType::kFlowMappingStart);
      return true;
    case U']':
      fetch_flow_end(YamlTokenType::kFlowSequenceEnd);
      return true;
    case U'}':
      fetch_flow_end(YamlTokenType::kFlowMappingEnd);
      return true;
    case U',':
      allow_simple_key_ = true;
      remove_possible_key();
      add(YamlTokenType::kFlowEntry, 1);
      return true;
    case U'-':
      if (blank_follows) fetch_block_entry();
      return blank_follows;
    case U'?':
      if (in_flow || blank_follows) fetch_key();
      return in_flow || blank_follows;
    case U':':
      if (in_flow || blank_follows) fetch_value();
      return in_flow || blank_follows;
    default:
      return false;
  }
}

void YamlScanner::fetch_text(char32_t c) {
  const bool in_flow = flow_level() > 0;
  const bool block = !in_flow && (c == U'|' || c == U'>');
  if (block) return fetch_scalar(true, scan_block_scalar(text_, indent_));
  const bool property = c == U'*' || c == U'&' || c == U'!';
  const bool quoted = c == U'\'' || c == U'"';
  constexpr std::u32string_view kSigns = U"-?:,[]{}#&*!|>'\"%@`";
  const bool leading_sign = c == U'-' || (!in_flow && (c == U'?' || c == U':'));
  const bool plain = !is_yaml_blank(c) && (kSigns.find(c) == std::u32string_view::npos ||
                                           (leading_sign && !is_yaml_blank(text_.peek(1))));
  if (!property && !quoted && !plain) {
    throw YamlError(text_.mark(),
                    fmt::format("found character {} that cannot start any token",
                                c == U'\t' ? "'\\t'" : quoted_character(c)),
                    c == U'\t' ? "indent with spaces" : "put the text into quotes");
  }
  save_possible_key();
  allow_simple_key_ = false;
  if (property) return tokens_.push_back(c == U'!' ? scan_tag(text_) : scan_anchor(text_));
  if (quoted) return tokens_.push_back(scan_flow_scalar(text_));
  tokens_.push_back(scan_plain(text_, in_flow, indent_, allow_simple_key_));
  last_plain_ = tokens_.back();
}

void YamlScanner::fetch_scalar(bool key_may_follow, YamlToken token) {
  allow_simple_key_ = key_may_follow;
  remove_possible_key();
  tokens_.push_back(std::move(token));
}

void YamlScanner::skip_to_token() {
  if (text_.mark().index == 0 && text_.peek() == 0xfeff) text_.forward();
  while (true) {
    text_.skip_spaces();
    if (text_.peek() == U'#') text_.skip_line();
    if (text_.take_break() == U'\0') return;
    if (flow_level() == 0) allow_simple_key_ = true;
  }
}

std::optional<std::size_t> YamlScanner::next_possible_key() const {
  std::optional<std::size_t> least;
  for (const auto& key : possible_keys_) {
    if (key && (!least || key->token_number < *least)) least = key->token_number;
  }
  return least;
}

void YamlScanner::drop_stale_keys() {
  for (auto& key : possible_keys_) {
    if (!key) continue;
    const bool stale =
        key->mark.line != text_.mark().line || text_.mark().index - key->mark.index > kLongestKey;
    if (!stale) continue;
    if (key->required) fail_no_colon(*key);
    key.reset();
  }
}

void YamlScanner::save_possible_key() {
  if (!allow_simple_key_) return;
  remove_possible_key();
  possible_keys_.back() = PossibleKey{tokens_taken_ + tokens_.size(),
                                      flow_level() == 0 && indent_ == text_.column(), text_.mark()};
}

void YamlScanner::remove_possible_key() {
  auto& key = possible_keys_.back();
  if (key && key->required) fail_no_colon(*key);
  key.reset();
}

void YamlScanner::fail_no_colon(const PossibleKey& key) const {
  std::string line = text_.line(key.mark.line);
  line.erase(0, std::min(line.find_first_not_of(' '), line.size()));
  throw YamlError(key.mark, fmt::format("could not find expected ':' after '{}'", shown(line)),
                  "write key: value, with a space after the colon");
}

void YamlScanner::fail_second_colon() const {
  const bool joined = last_plain_.plain && last_plain_.start.line < text_.mark().line;
  std::string fix = "put a text with a colon in it into quotes";
  if (joined) {
    fix = fmt::format("line {} has no colon: write key: value, with a space after it",
                      last_plain_.start.line + 1);
  }
  throw YamlError(text_.mark(), "mapping values are not allowed here", fix);
}

void YamlScanner::unwind_indent(int column) {
  if (flow_level() > 0) return;
  while (indent_ > column) {
    indent_ = indents_.back();
    indents_.pop_back();
    add(YamlTokenType::kBlockEnd, 0);
  }
}

bool YamlScanner::add_indent(int column) {
  if (indent_ >= column) return false;
  indents_.push_back(indent_);
  indent_ = column;
  return true;
}

void YamlScanner::add(YamlTokenType type, std::size_t length) {
  YamlToken token;
  token.type = type;
  token.start = text_.mark();
  text_.forward(length);
  token.end = text_.mark();
  tokens_.push_back(std::move(token));
}

void YamlScanner::insert(std::size_t token_number, YamlTokenType type, const YamlMark& mark) {
  YamlToken token;
  token.type = type;
  token.start = mark;
  token.end = mark;
  tokens_.insert(tokens_.begin() + static_cast<std::ptrdiff_t>(token_number - tokens_taken_),
                 std::move(token));
}

void YamlScanner::fetch_stream_end() {
  unwind_indent(-1);
  remove_possible_key();
  allow_simple_key_ = false;
  for (auto& key : possible_keys_) key.reset();
  add(YamlTokenType::kStreamEnd, 0);
  done_ = true;
}

void YamlScanner::fetch_flow_start(YamlTokenType type) {
  if (flow_level() >= kDeepestFlow) throw YamlError(text_.mark(), "nested too deeply");
  save_possible_key();
  possible_keys_.emplace_back();
  allow_simple_key_ = true;
  add(type, 1);
}

void YamlScanner::fetch_flow_end(YamlTokenType type) {
  remove_possible_key();
  if (flow_level() == 0) {
    throw YamlError(text_.mark(), "expected the node content, but found " + yaml_token_name(type),
                    "remove it, or put the text into quotes");
  }
  possible_keys_.pop_back();
  allow_simple_key_ = false;
  add(type, 1);
}

void YamlScanner::fetch_block_entry() {
  if (flow_level() == 0) {
    if (!allow_simple_key_) {
      throw YamlError(text_.mark(), "sequence entries are not allowed here",
                      "begin the list on a line of its own");
    }
    if (add_indent(text_.column())) add(YamlTokenType::kBlockSequenceStart, 0);
  }
  allow_simple_key_ = true;
  remove_possible_key();
  add(YamlTokenType::kBlockEntry, 1);
}

void YamlScanner::fetch_key() {
  const bool in_flow = flow_level() > 0;
  if (!in_flow) {
    if (!allow_simple_key_)
      throw YamlError(text_.mark(), "mapping keys are not allowed here", "put it into quotes");
    if (add_indent(text_.column())) add(YamlTokenType::kBlockMappingStart, 0);
  }
  allow_simple_key_ = !in_flow;
  remove_possible_key();
  add(YamlTokenType::kKey, 1);
}

void YamlScanner::fetch_key_before(const PossibleKey& key) {
  insert(key.token_number, YamlTokenType::kKey, key.mark);
  if (flow_level() == 0 && add_indent(key.mark.column))
    insert(key.token_number, YamlTokenType::kBlockMappingStart, key.mark);
  allow_simple_key_ = false;
}

void YamlScanner::fetch_value() {
  const bool in_flow = flow_level() > 0;
  if (const auto key = std::exchange(possible_keys_.back(), std::nullopt)) {
    fetch_key_before(*key);
  } else {
    if (!in_flow && !allow_simple_key_) fail_second_colon();
    if (!in_flow && add_indent(text_.column())) add(YamlTokenType::kBlockMappingStart, 0);
    allow_simple_key_ = !in_flow;
  }
  add(YamlTokenType::kValue, 1);
}

}  // namespace ddp::train
