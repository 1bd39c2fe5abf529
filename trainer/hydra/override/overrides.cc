#include "trainer/hydra/override/overrides.h"

#include <regex>

namespace ddp::train {
namespace {

constexpr std::size_t kLongestKey = 1000;  // std::regex recurses

/// Nothing, a word, or words and indices with dots between.
bool is_package(const std::string& text) {
  static const std::regex pattern(
      "|[A-Za-z_$][\\w$-]*|([A-Za-z_$][\\w$-]*|0|[1-9]\\d*)(\\.([A-Za-z_$][\\w$-]*|0|[1-9]\\d*))+");
  return text.size() <= kLongestKey && std::regex_match(text, pattern);
}

/// A package, or (a config group) words with slashes between.
bool is_key(const std::string& text) {
  static const std::regex group("[A-Za-z_][\\w-]*(/[A-Za-z_][\\w-]*)+");
  return is_package(text) || (text.size() <= kLongestKey && std::regex_match(text, group));
}

/// From here on a text is a text, in quotes or not.
void set_places(Node& node, const Place& place) {
  node.place = place;
  node.quoted = false;
  for (Node& item : node.items) set_places(item, place);
  for (Entry& entry : node.entries) {
    entry.key.place = place;
    set_places(entry.value, place);
  }
}

OverrideType take_prefix(std::string_view& rest) {
  const auto take = [&rest](std::string_view prefix) {
    if (!rest.starts_with(prefix)) return false;
    rest.remove_prefix(prefix.size());
    return true;
  };
  if (take("++")) return OverrideType::kForceAdd;
  if (take("+")) return OverrideType::kAdd;
  if (take("~")) return OverrideType::kDelete;
  return OverrideType::kChange;
}

}  // namespace

Override parse_override(const std::string& text) {
  const Place place = Place::of_override(text);
  Override result;
  result.text = text;
  std::string_view rest = text;
  result.type = take_prefix(rest);
  const std::size_t equal = rest.find('=');
  result.has_value = equal != std::string_view::npos;
  const std::string_view name = rest.substr(0, equal);
  const std::size_t at = name.find('@');
  result.key = std::string(name.substr(0, at));
  if (at != std::string_view::npos) result.package = std::string(name.substr(at + 1));
  if (!result.has_value && result.type != OverrideType::kDelete) {
    fail_with(place, "not an override; write KEY=VALUE, e.g. trainer_config.seed=1");
  }
  if (result.key.empty() || !is_key(result.key) || !is_package(result.package.value_or(""))) {
    fail_at(place, "'{}' is not a key; write section.key=value, without spaces", name);
  }
  if (result.has_value) {
    OverrideValue value = parse_override_value(rest.substr(equal + 1), place);
    result.value = std::move(value.item.value);
    result.value_text = std::move(value.item.text);
    result.sweep = std::move(value.sweep);
  }
  set_places(result.value, place);
  return result;
}

void refuse_sweeps(const std::vector<Override>& overrides) {
  for (const Override& change : overrides) {
    if (!change.sweep) continue;
    if (change.sweep->kind != SweepKind::kSimpleChoice)
      fail_at(change.value.place, "'{}' is a sweep; add --multirun", change.text);
    fail_at(change.value.place,
            "several values for '{}'; write [a,b] for a list, quote the text (\\'a,b\\'), or add "
            "--multirun to sweep over them",
            change.text);
  }
}

}  // namespace ddp::train
