#include "trainer/hydra/compose/group_choices.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainer/hydra/compose/config_repository.h"
#include "trainer/runtime/log/message.h"

namespace ddp::train {
namespace {

std::string key_with_package(const Override& change) {
  return change.package ? change.key + "@" + *change.package : change.key;
}

template <class List>
auto* find_key(List& list, const std::string& key) {
  const auto found =
      std::find_if(list.begin(), list.end(), [&](const auto& item) { return item.key == key; });
  return found == list.end() ? nullptr : &*found;
}

}  // namespace

GroupChoices::GroupChoices(const ConfigRepository& repository,
                           const std::vector<Override>& overrides) {
  for (const Override& change : overrides) {
    const bool group = change.value.kind != Kind::kMap && repository.has_group(change.key);
    if (group) {
      take(change);
    } else {
      value_overrides_.push_back(change);
    }
  }
}

void GroupChoices::take(const Override& change) {
  const Node& value = change.value;
  if (change.type == OverrideType::kForceAdd)
    fail_with(value.place, "force-add of config groups is not supported; write one +");
  if (change.type == OverrideType::kDelete) {
    if (value.kind != Kind::kNull && value.kind != Kind::kString)
      fail_with(value.place, "~ takes the name of an option here; quote it");
    std::erase_if(deletions_, [&](const Wish& d) { return d.key == key_with_package(change); });
    deletions_.push_back({key_with_package(change), GroupOption::of(value), "", value.place});
    return;
  }
  if (value.kind == Kind::kNull)
    fail_at(value.place, "'{0}' is a config group; write {0}=<option>", change.key);
  GroupOption option = GroupOption::of(value);
  if (change.type == OverrideType::kAdd) {
    DefaultElement element = DefaultElement::config(change.key);
    element.kind = DefaultKind::kGroup;
    element.package = change.package == "_here_" ? "" : change.package;
    element.option = std::move(option);
    element.external = true;
    element.place = value.place;
    appended_.push_back(std::move(element));
    return;
  }
  std::erase_if(choices_, [&](const Wish& c) { return c.key == key_with_package(change); });
  choices_.push_back({key_with_package(change), std::move(option), "", value.place});
}

void GroupChoices::add_override(const std::string& config_path, const DefaultElement& element) {
  const std::string key = element.override_key();
  if (find_key(choices_, key) != nullptr) return;  // an earlier one is stronger
  choices_.push_back({key, element.option, config_path, element.place});
}

void GroupChoices::choose(DefaultElement& element) {
  if (element.kind != DefaultKind::kGroup) return;
  Wish* choice = find_key(choices_, element.override_key());
  if (choice == nullptr) return;
  element.option = choice->option;
  element.place = choice->place;
  choice->used = true;
}

bool GroupChoices::remove(DefaultElement& element) {
  if (element.kind != DefaultKind::kGroup) return false;
  Wish* deletion = find_key(deletions_, element.override_key());
  if (deletion == nullptr || (deletion->option.name && deletion->option.name != element.name()))
    return false;
  deletion->used = true;
  element.deleted = true;
  return true;
}

void GroupChoices::remember(const DefaultElement& element) {
  if (element.kind != DefaultKind::kGroup) return;
  const std::string key = element.override_key();
  const auto found = std::find_if(known_.begin(), known_.end(),
                                  [&](const auto& item) { return item.first == key; });
  if (found == known_.end()) {
    known_.emplace_back(key, element.name());
  } else if (found->second != element.name()) {
    fail_at(element.place, "'{0}' is chosen twice, as {1} and as {2}; write override {0}: {2}", key,
            found->second.value_or("null"), element.name().value_or("null"));
  }
}

void GroupChoices::fail_unused(const Wish& choice) const {
  const auto group_of = [](const std::string& key) { return key.substr(0, key.find('@')); };
  std::vector<std::string> groups;
  std::vector<std::string> same_group;
  for (const auto& [key, option] : known_) {
    groups.push_back(group_of(key));
    if (groups.back() == group_of(choice.key)) same_group.push_back(key);
  }
  const std::string what =
      fmt::format("'{}' is not in the defaults list, so it cannot be overridden", choice.key);
  const std::string add = choice.containing.empty() ? fmt::format("to add it, write +{}={}",
                                                                  choice.key, choice.option.str())
                                                    : "check the name";
  const std::string fix = same_group.empty()
                              ? did_you_mean(choice.key, groups, add)
                              : fmt::format("did you mean {}?", fmt::join(same_group, " or "));
  const std::string in =
      choice.containing.empty() ? "" : fmt::format("in '{}': ", choice.containing);
  fail_at(choice.place, "{}{}; {}", in, what, fix);
}

void GroupChoices::check_all_used() const {
  for (const Wish& choice : choices_) {
    if (!choice.used) fail_unused(choice);
  }
  for (const Wish& deletion : deletions_) {
    if (deletion.used) continue;
    const std::string value = deletion.option.name ? "=" + *deletion.option.name : "";
    fail_at(deletion.place,
            "'{}{}' is not in the defaults list, so ~ cannot remove it; check the name",
            deletion.key, value);
  }
}

}  // namespace ddp::train
