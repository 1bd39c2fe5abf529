// Choices of config groups, from command line overrides and `override` items in defaults lists.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainer/hydra/compose/default_element.h"
#include "trainer/hydra/override/overrides.h"

namespace ddp::train {

class ConfigRepository;

class GroupChoices {
 public:
  /// Takes the overrides of groups; the others are kept for later.
  GroupChoices(const ConfigRepository& repository, const std::vector<Override>& overrides);

  const std::vector<DefaultElement>& appended() const { return appended_; }
  const std::vector<Override>& value_overrides() const { return value_overrides_; }
  const std::vector<std::pair<std::string, std::optional<std::string>>>& known() const {
    return known_;
  }

  /// `- override group: option` in the file `config_path`.
  void add_override(const std::string& config_path, const DefaultElement& element);
  /// Sets the element's option to the one chosen for its group, if any.
  void choose(DefaultElement& element);
  /// Marks an element that `~group` removes.
  bool remove(DefaultElement& element);
  /// Records an element's option. Throws UserError if its group has another one already.
  void remember(const DefaultElement& element);
  /// Throws UserError for a choice or deletion that matched no element.
  void check_all_used() const;

 private:
  /// A choice, or a deletion with its option.
  struct Wish {
    std::string key;
    GroupOption option;
    std::string containing;  ///< The file that holds it; empty: the command line.
    Place place;
    bool used = false;
  };

  void take(const Override& change);
  void fail_unused(const Wish& choice) const;

  std::vector<Wish> choices_;
  std::vector<Wish> deletions_;
  std::vector<DefaultElement> appended_;
  std::vector<Override> value_overrides_;
  std::vector<std::pair<std::string, std::optional<std::string>>> known_;
};

}  // namespace ddp::train
