// YAML characters -> tokens, by PyYAML's rules: what it refuses is refused, in its words.
#pragma once

#include <deque>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config/yaml_token.h"

namespace ddp::train {

/// Makes tokens as they are asked for. Throws YamlError.
class YamlScanner {
 public:
  explicit YamlScanner(std::u32string text) : text_(std::move(text)), possible_keys_(1) {}

  const YamlToken& peek();
  YamlToken next();
  bool check(std::initializer_list<YamlTokenType> types);

 private:
  /// A place where a key may have begun; it is known as one only when its colon comes.
  struct PossibleKey {
    std::size_t token_number = 0;
    bool required = false;
    YamlMark mark;
  };

  std::size_t flow_level() const { return possible_keys_.size() - 1; }
  bool needs_more();
  void fetch_more();
  /// The tokens of one or three fixed characters; false when none begins here.
  bool fetch_sign(char32_t c);
  bool fetch_document_sign(char32_t c);
  void fetch_text(char32_t c);
  void skip_to_token();

  std::optional<std::size_t> next_possible_key() const;
  void drop_stale_keys();
  void save_possible_key();
  void remove_possible_key();
  [[noreturn]] void fail_no_colon(const PossibleKey& key) const;
  [[noreturn]] void fail_second_colon() const;

  void unwind_indent(int column);
  bool add_indent(int column);

  void fetch_stream_end();
  void fetch_flow_start(YamlTokenType type);
  void fetch_flow_end(YamlTokenType type);
  void fetch_block_entry();
  void fetch_key();
  void fetch_value();
  /// The colon of a key that has been saved as a possible one.
  void fetch_key_before(const PossibleKey& key);
  void fetch_scalar(bool key_may_follow, YamlToken token);
  void add(YamlTokenType type, std::size_t length);
  void insert(std::size_t token_number, YamlTokenType type, const YamlMark& mark);

  YamlText text_;
  std::deque<YamlToken> tokens_;
  std::size_t tokens_taken_ = 0;
  std::vector<std::optional<PossibleKey>> possible_keys_;  // by flow level
  std::vector<int> indents_;
  int indent_ = -1;
  bool allow_simple_key_ = true;
  bool done_ = false;
  YamlToken last_plain_;  // for messages: a line without a colon joins the next one
};

}  // namespace ddp::train
