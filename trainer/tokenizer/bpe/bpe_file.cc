#include "trainer/tokenizer/bpe/bpe_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "trainer/runtime/error.h"
#include "trainer/runtime/files/foreign_json.h"
#include "trainer/tokenizer/bpe/bpe_parts.h"

namespace ddp::train {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

/// Makes a spec of the parts of a file; every complaint starts with the file's name.
class SpecReader {
 public:
  explicit SpecReader(std::string name) : name_(std::move(name)) {}

  [[noreturn]] void fail(const std::string& what) const { throw UserError(name_ + ": " + what); }

  void read_vocabulary(const Json& vocabulary, std::size_t added) {
    if (!vocabulary.is_object() || vocabulary.empty())
      fail("holds no vocabulary: an object of token and id is expected");
    most_ = vocabulary.size() + added;
    for (const auto& [token, id] : vocabulary.items()) place(token, id);
  }

  void read_added(const Json& tokens) {
    if (!tokens.is_array()) fail("'added_tokens' is not a list");
    for (const Json& token : tokens) add_token(token);
  }

  void add_end_of_text() {
    const auto found = ids_.find(kEndOfText);
    if (found != ids_.end()) spec_.added.push_back({kEndOfText, found->second});
  }

  void check_no_gap() {
    for (std::size_t id = 0; id < spec_.vocabulary.size(); ++id) {
      if (!present_[id])
        fail(fmt::format("id {} is missing; ids must go from 0 without a gap", id));
    }
  }

  void add_merge(std::string_view left, std::string_view right) {
    const std::string result = std::string(left) + std::string(right);
    const Merge merge = {merged_id(left, left, right), merged_id(right, left, right),
                         merged_id(result, left, right)};
    spec_.merges.push_back(merge);
  }

  /// "left right"
  void add_merge(std::string_view line) {
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == line.size() ||
        line.find(' ', space + 1) != std::string_view::npos) {
      fail(fmt::format("merge {} ({}) is not two tokens with a space between",
                       spec_.merges.size() + 1, quoted_part(line)));
    }
    add_merge(line.substr(0, space), line.substr(space + 1));
  }

  void rename(const std::string& name) { name_ = name; }
  BpeSpec& spec() { return spec_; }

 private:
  void place(const std::string& token, const Json& id) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= most_) {
      fail(fmt::format("token {} has the id {}; ids must go from 0 without a gap",
                       quoted_part(token), quoted_part(id.dump())));
    }
    const auto at = id.get<std::size_t>();
    if (at >= present_.size()) {
      present_.resize(at + 1);
      spec_.vocabulary.resize(at + 1);
    }
    if (present_[at]) fail(fmt::format("two tokens have the id {}", at));
    present_[at] = true;
    spec_.vocabulary[at] = token;
    ids_.emplace(token, static_cast<int32_t>(at));
  }

  void add_token(const Json& token) {
    if (!token.is_object() || !token.contains("content") || !token["content"].is_string() ||
        !token.contains("id") || token["content"].get_ref<const std::string&>().empty()) {
      fail("an entry of 'added_tokens' has no content or no id");
    }
    const auto& content = token["content"].get_ref<const std::string&>();
    if (part_flag(token, "single_word", false))
      fail(fmt::format(
          "added_tokens.single_word is set for {}, which this trainer does not reproduce",
          quoted_part(content)));
    const auto known = ids_.find(content);
    if (known == ids_.end()) {
      place(content, token["id"]);
    } else if (token["id"] != known->second) {
      fail(fmt::format("added token {} has two ids", quoted_part(content)));
    }
    spec_.added.push_back({content, ids_.at(content), part_flag(token, "special", false),
                           part_flag(token, "normalized", false), part_flag(token, "lstrip", false),
                           part_flag(token, "rstrip", false),
                           part_flag(token, "end_of_text", false)});
  }

  int32_t merged_id(std::string_view token, std::string_view left, std::string_view right) const {
    const auto found = ids_.find(std::string(token));
    if (found == ids_.end()) {
      fail(fmt::format(
          "merge {} ({} with {}): {} is not in the vocabulary; do the files belong "
          "together?",
          spec_.merges.size() + 1, quoted_part(left), quoted_part(right), quoted_part(token)));
    }
    return found->second;
  }

  std::string name_;
  BpeSpec spec_;
  std::size_t most_ = 0;
  std::vector<bool> present_;
  std::unordered_map<std::string, int32_t> ids_;
};

bool is_blank(const Json& value) {
  return value.is_null() || (value.is_string() && value.get_ref<const std::string&>().empty());
}

void check_model(const Json& model, const SpecReader& reader) {
  const std::string type = part_type(model);
  if (!model.is_object() || (!type.empty() && type != "BPE"))
    reader.fail(
        fmt::format("model.type is {}; this trainer reads BPE, WordPiece and WordLevel of "
                    "characters",
                    quoted_part(model.is_object() ? type : "missing")));
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!is_blank(part_member(model, affix)))
      reader.fail(fmt::format("model.{} is set; this trainer reads BPE without", affix));
  }
  const Json& dropout = part_member(model, "dropout");
  if (dropout.is_number() && dropout != 0)
    reader.fail("model.dropout is set; this trainer reads BPE without");
}

void read_tokens(const Json& root, SpecReader& reader) {
  const Json& added = part_member(root, "added_tokens");
  reader.read_vocabulary(part_member(part_member(root, "model"), "vocab"), added.size());
  if (!added.is_null()) reader.read_added(added);
  reader.check_no_gap();
}

void read_merge_list(const Json& merges, SpecReader& reader) {
  if (!merges.is_array()) reader.fail("'merges' is not a list");
  for (const Json& merge : merges) {
    const bool pair =
        merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string();
    if (pair) {
      reader.add_merge(merge[0].get_ref<const std::string&>(),
                       merge[1].get_ref<const std::string&>());
    } else if (merge.is_string()) {
      reader.add_merge(merge.get_ref<const std::string&>());
    } else {
      reader.fail("an entry of 'merges' is not two tokens");
    }
  }
}

OrderedJson model_json(const BpeSpec& spec) {
  OrderedJson merges = OrderedJson::array();
  for (const Merge& merge : spec.merges) {
    merges.push_back({spec.vocabulary[static_cast<std::size_t>(merge.left)],
                      spec.vocabulary[static_cast<std::size_t>(merge.right)]});
  }
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", spec.ignore_merges},
          {"vocab", vocabulary_json(spec.vocabulary)},
          {"merges", std::move(merges)}};
}

/// BpeSpec::file_parts into the file that is written.
void put_back(const OrderedJson& parts, OrderedJson& root) {
  for (const auto& [key, part] : parts.items()) {
    if (key != "model") root[key] = part;
  }
  for (const auto& [key, value] : parts.at("model").items()) root["model"][key] = value;
}

}  // namespace

BpeSpec read_vocabulary_and_added(const nlohmann::json& root, const std::string& name) {
  SpecReader reader(name);
  read_tokens(root, reader);
  return std::move(reader.spec());
}

BpeSpec read_tokenizer_json(const nlohmann::json& root, const std::string& name) {
  SpecReader reader(name);
  if (!root.is_object()) reader.fail("is not a tokenizer.json: an object is expected");
  const Json& model = part_member(root, "model");
  check_model(model, reader);
  read_tokens(root, reader);
  read_merge_list(part_member(model, "merges"), reader);
  reader.spec().ignore_merges = part_flag(model, "ignore_merges", false);
  read_bpe_parts(root, name, reader.spec());
  return std::move(reader.spec());
}

BpeSpec parse_vocab_and_merges(std::string_view vocab, const std::string& vocab_name,
                               std::string_view merges, const std::string& merges_name) {
  SpecReader reader(vocab_name);
  reader.read_vocabulary(parse_bounded_json(vocab, vocab_name), 0);
  reader.check_no_gap();
  reader.add_end_of_text();
  reader.rename(merges_name);
  while (!merges.empty()) {
    const std::size_t end = std::min(merges.find('\n'), merges.size());
    std::string_view line = merges.substr(0, end);
    merges.remove_prefix(std::min(end + 1, merges.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty() && !line.starts_with("#version")) reader.add_merge(line);
  }
  return std::move(reader.spec());
}

nlohmann::ordered_json vocabulary_json(const std::vector<std::string>& tokens) {
  // Members are appended as they come: set by name, each would be looked for among the others.
  OrderedJson::object_t vocabulary;
  for (std::size_t id = 0; id < tokens.size(); ++id)
    vocabulary.std::vector<OrderedJson::object_t::value_type>::emplace_back(tokens[id], id);
  return vocabulary;
}

nlohmann::ordered_json added_tokens_json(const std::vector<AddedToken>& tokens) {
  OrderedJson list = OrderedJson::array();
  for (const AddedToken& token : tokens) {
    list.push_back({{"id", token.id},
                    {"content", token.content},
                    {"single_word", false},
                    {"lstrip", token.lstrip},
                    {"rstrip", token.rstrip},
                    {"normalized", token.normalized},
                    {"special", token.special}});
    if (token.end_of_text) list.back()["end_of_text"] = true;
  }
  return list;
}

std::string tokenizer_json(const BpeSpec& spec) {
  const OrderedJson byte_level = {{"type", "ByteLevel"},
                                  {"add_prefix_space", spec.add_prefix_space},
                                  {"trim_offsets", true},
                                  {"use_regex", true}};
  OrderedJson root = {{"version", "1.0"},          {"truncation", nullptr},
                      {"padding", nullptr},        {"added_tokens", added_tokens_json(spec.added)},
                      {"normalizer", nullptr},     {"pre_tokenizer", byte_level},
                      {"post_processor", nullptr}, {"decoder", byte_level},
                      {"model", model_json(spec)}};
  if (!spec.file_parts.empty()) put_back(OrderedJson::parse(spec.file_parts), root);
  return root.dump() + "\n";
}

}  // namespace ddp::train
