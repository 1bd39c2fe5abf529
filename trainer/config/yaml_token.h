// The tokens of a YAML text, and what scans those that have a text of their own.
#pragma once

#include <string>

#include "trainer/config/yaml_text.h"

namespace ddp::train {

enum class YamlTokenType {
  kDirective,
  kDocumentStart,
  kDocumentEnd,
  kStreamEnd,
  kBlockSequenceStart,
  kBlockMappingStart,
  kBlockEnd,
  kFlowSequenceStart,
  kFlowMappingStart,
  kFlowSequenceEnd,
  kFlowMappingEnd,
  kBlockEntry,
  kFlowEntry,
  kKey,
  kValue,
  kAlias,
  kAnchor,
  kTag,
  kScalar
};

struct YamlToken {
  YamlTokenType type = YamlTokenType::kStreamEnd;
  YamlMark start;
  YamlMark end;
  std::string text;    ///< A scalar, the name of an anchor, the end of a tag, what %TAG stands for.
  std::string handle;  ///< Of a tag or of %TAG: "!", "!!", "!e!"; "" for !<...> and for ! alone.
  std::string name;    ///< Of a directive.
  bool plain = false;  ///< A scalar without quotes.
};

/// "<scalar>", "':'", as PyYAML names it.
std::string yaml_token_name(YamlTokenType type);

/// Each takes its token from the text, whose cursor stands at the first character. They throw
/// YamlError.
YamlToken scan_directive(YamlText& text);
YamlToken scan_anchor(YamlText& text);
YamlToken scan_tag(YamlText& text);
YamlToken scan_block_scalar(YamlText& text, int parent_indent);
YamlToken scan_flow_scalar(YamlText& text);

/// `line_ended` is set when the text went on to another line: a key may follow there.
YamlToken scan_plain(YamlText& text, bool in_flow, int parent_indent, bool& line_ended);

}  // namespace ddp::train
