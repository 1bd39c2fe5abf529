#include "trainer/hydra/compose/defaults_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>

#include "trainer/hydra/compose/group_choices.h"
#include "trainer/hydra/interpolation/interpolation.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/log/message.h"

namespace ddp::train {
namespace {

constexpr int kDeepestList = 100;  // a configuration that includes itself has no end
constexpr int kMostElements = 10'000;

/// An element with those that its own defaults list brought; a leaf stands for one configuration.
struct TreeNode {
  DefaultElement element;
  const TreeNode* parent = nullptr;
  std::vector<std::unique_ptr<TreeNode>> children;
};

/// Grows the tree from a root element. Lists are walked from their end, as Hydra walks them: an
/// `override` in a later element reaches the earlier ones.
class DefaultsTreeBuilder {
 public:
  DefaultsTreeBuilder(ConfigRepository& repository, GroupChoices& choices, bool skip_missing)
      : repository_(repository), choices_(choices), skip_missing_(skip_missing) {}

  void expand(TreeNode& node, bool interpolated) {
    if (++elements_ > kMostElements)
      fail_with(node.element.place, "the defaults lists bring too many files; use fewer");
    if (++depth_ > kDeepestList)
      fail_with(node.element.place, "the defaults lists include each other in a cycle; break it");
    expand_inside(node, interpolated);
    --depth_;
  }

 private:
  void expand_inside(TreeNode& node, bool interpolated) {
    DefaultElement& element = node.element;
    const LoadedConfig* config = nullptr;
    if (!element.is_missing() && element.name()) config = repository_.load(element.config_path());
    if (config != nullptr) element.set_package_header(config->package);
    if (choices_.remove(element)) return;
    choices_.remember(element);
    if (!element.name()) return;
    if (element.is_missing() && skip_missing_) return;
    if (element.is_missing()) fail_missing(element);
    if (config == nullptr) {
      if (!element.optional) fail_not_found(node);
      element.deleted = true;
      return;
    }
    std::vector<DefaultElement> list = defaults_of(*config, element);
    take_overrides(list, element, interpolated);
    for (auto item = list.rbegin(); item != list.rend(); ++item) {
      if (!item->override) add(node, *item, interpolated);
    }
    expand_interpolated(node);
    std::reverse(node.children.begin(), node.children.end());
  }

  /// The file's list with _self_ in it, and for the primary one what the command line appends.
  std::vector<DefaultElement> defaults_of(const LoadedConfig& config,
                                          const DefaultElement& element) const {
    std::vector<DefaultElement> list = config.defaults;
    const bool appends = element.primary && !choices_.appended().empty();
    if (list.empty() && !appends) return list;
    const auto selves = std::count_if(list.begin(), list.end(),
                                      [](const DefaultElement& item) { return item.is_self(); });
    if (selves > 1)
      fail_at(list.front().place, "_self_ appears more than once in {}; keep one",
              element.config_path());
    if (selves == 0) list.push_back(DefaultElement::self());
    if (appends) list.insert(list.end(), choices_.appended().begin(), choices_.appended().end());
    return list;
  }

  void take_overrides(std::vector<DefaultElement>& list, const DefaultElement& parent,
                      bool interpolated) {
    const DefaultElement* last = nullptr;
    for (DefaultElement& item : list) {
      if (item.is_self()) continue;
      item.set_parent(parent.group_path(), parent.final_package());
      if (last != nullptr && !item.override && !item.external) {
        fail_at(item.place,
                "in {}: override '{}: {}' comes before '{}'; move overrides to the end of the "
                "defaults list",
                parent.config_path(), last->override_key(), last->option.str(),
                item.override_key());
      }
      if (!item.override) continue;
      last = &item;
      if (interpolated) {
        fail_at(
            item.place,
            "{}: override {}={} below an interpolated group; move it to the primary configuration",
            parent.config_path(), item.override_key(), item.option.str());
      }
      choices_.add_override(parent.config_path(), item);
    }
  }

  void add(TreeNode& parent, DefaultElement item, bool interpolated) {
    if (!item.is_self()) choices_.choose(item);
    if (!item.option.several) {
      TreeNode& child = add_leaf(parent, std::move(item));
      if (!child.element.is_self() && !child.element.is_interpolation())
        expand(child, interpolated);
      return;
    }
    for (auto option = item.option.several->rbegin(); option != item.option.several->rend();
         ++option) {
      if (option->find("${") != std::string::npos) {
        fail_at(item.place, "in '{}': ${{}} in a list of options; write the option's name",
                parent.element.config_path());
      }
      DefaultElement one = DefaultElement::config(item.path + "/" + *option);
      one.package = item.package;
      one.optional = item.optional;
      one.place = item.place;
      one.set_parent(item.parent_base_dir, item.parent_package);
      expand(add_leaf(parent, std::move(one)), interpolated);
    }
  }

  static TreeNode& add_leaf(TreeNode& parent, DefaultElement element) {
    auto child = std::make_unique<TreeNode>();
    child->element = std::move(element);
    child->parent = &parent;
    return *parent.children.emplace_back(std::move(child));
  }

  /// `- db_${version}`: once every other choice is known.
  void expand_interpolated(TreeNode& node) {
    for (const auto& child : node.children) {
      DefaultElement& element = child->element;
      if (!element.is_interpolation()) continue;
      if (element.kind == DefaultKind::kGroup) {
        element.option.name = resolved(*element.option.name, element.place);
      } else {
        element.path = resolved(element.config_path(), element.place);
      }
      expand(*child, true);
    }
  }

  std::string resolved(const std::string& text, const Place& place) const {
    Node values = Node::map();
    std::vector<std::string> keys;
    for (const auto& [key, option] : choices_.known()) {
      keys.push_back(key);
      set_entry(values, Node::of(key), option ? Node::of(*option) : Node::null());
    }
    const std::string key = "_dummy_";
    set_entry(values, Node::of(key), Node::of(text));
    try {
      const Node value = select_value(values, key);
      if (value.kind == Kind::kString) return value.text;
    } catch (const UserError&) {
      // told below
    }
    fail_at(place, "cannot resolve '{}' in the defaults list; groups that can be used: {}", text,
            fmt::join(keys, ", "));
  }

  [[noreturn]] void fail_missing(const DefaultElement& element) const {
    if (element.kind == DefaultKind::kConfig)
      fail_with(element.place,
                "an item of defaults is ???; write a configuration's name in place of " +
                    element.config_path());
    const std::string key = element.override_key();
    fail_at(element.place, "no option chosen for '{}'; write {}=OPTION, one of: {}", key, key,
            fmt::join(repository_.options(element.group_path()), ", "));
  }

  [[noreturn]] void fail_not_found(const TreeNode& node) const {
    const DefaultElement& element = node.element;
    std::string where = "searched in " + fmt::format("{}", fmt::join(repository_.folders(), ", "));
    std::string what = fmt::format("cannot find '{}'", element.config_path());
    if (element.primary)
      what = fmt::format("cannot find the configuration '{}'", element.config_path());
    if (element.kind == DefaultKind::kGroup) {
      const auto options = repository_.options(element.group_path());
      const std::string near = nearest(element.option.name.value_or(""), options);
      what = fmt::format("no option '{}'", element.config_path());
      if (!options.empty())
        where = fmt::format("options of '{}': {}", element.group_path(), fmt::join(options, ", "));
      if (!near.empty()) where = fmt::format("did you mean '{}'? ({})", near, where);
    }
    const bool named = node.parent != nullptr && !node.parent->element.path.empty();
    if (named) what = fmt::format("in '{}': {}", node.parent->element.config_path(), what);
    fail_with(element.place, what + "; " + where);
  }

  ConfigRepository& repository_;
  GroupChoices& choices_;
  const bool skip_missing_;
  int depth_ = 0;
  int elements_ = 0;
};

void collect(const TreeNode& node, std::vector<ResultDefault>& out) {
  for (const auto& child : node.children) collect(*child, out);
  if (!node.children.empty()) return;
  const DefaultElement& element = node.element;
  if (element.deleted || element.is_missing() || !element.name()) return;
  // _self_ stands for the configuration that holds the list.
  const DefaultElement& source = element.is_self() ? node.parent->element : element;
  const bool group = !element.is_self() && element.kind == DefaultKind::kGroup;
  out.push_back({source.config_path(), source.final_package(),
                 group ? element.override_key() : std::string(), source.primary});
}

void check_unique(const std::vector<ResultDefault>& configs) {
  std::set<std::string> keys;
  for (const ResultDefault& config : configs) {
    if (!config.override_key.empty() && !keys.insert(config.override_key).second) {
      throw UserError(
          fmt::format("{} appears more than once in the final defaults list; take one "
                      "of them out",
                      config.override_key));
    }
  }
}

}  // namespace

DefaultsList make_defaults_list(ConfigRepository& repository,
                                const std::vector<Override>& overrides, bool skip_missing) {
  GroupChoices choices(repository, overrides);
  TreeNode hydra;
  hydra.element = DefaultElement::config("hydra/config");
  TreeNode primary;
  primary.element = DefaultElement::config(repository.source().name);
  primary.element.primary = true;
  DefaultsTreeBuilder builder(repository, choices, skip_missing);
  builder.expand(primary, false);
  builder.expand(hydra, false);

  DefaultsList list;
  collect(hydra, list.configs);
  collect(primary, list.configs);
  check_unique(list.configs);
  choices.check_all_used();
  list.value_overrides = choices.value_overrides();
  for (const auto& [key, option] : choices.known())
    list.choices.emplace_back(key, option.value_or("null"));
  return list;
}

}  // namespace ddp::train
