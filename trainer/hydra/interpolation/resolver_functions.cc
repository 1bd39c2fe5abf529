// The functions of interpolations: ${oc.env:NAME}, ${now:%Y} and so on.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "trainer/hydra/interpolation/resolver.h"
#include "trainer/hydra/yaml/yaml_reader.h"
#include "trainer/runtime/log/message.h"
#include "trainer/runtime/process/start_time.h"

namespace ddp::train {
namespace {

using References = std::vector<const NodeRef*>;

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos;
       at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

const std::string& text_of(const NodeRef& argument) {
  if (argument.node->kind == Kind::kString) return argument.node->text;
  throw ResolveError(fmt::format("takes a string, not '{}' ({})", shown(python_str(*argument.node)),
                                 python_type(*argument.node)));
}

const NodeRef& found_or_fail(const NodeRef* found, const std::string& path) {
  if (found != nullptr) return *found;
  throw ResolveError(fmt::format("key '{}' not found; check the name", path));
}

const NodeRef& oc_env(Resolver& resolver, const References& arguments, const NodeRef& at) {
  const std::string& name = text_of(*arguments[0]);
  if (const char* value = std::getenv(name.c_str()))
    return resolver.temporary(Node::of(std::string(value)), at);
  if (arguments.size() == 1)
    throw ResolveError(fmt::format(
        "environment variable {} is not set; set it or give a default: ${{oc.env:{},default}}",
        name, name));
  const Node& fallback = *arguments[1]->node;
  const bool null = fallback.kind == Kind::kNull;
  return resolver.temporary(null ? Node::null() : Node::of(python_str(fallback)), at);
}

const NodeRef& oc_decode(Resolver& resolver, const References& arguments, const NodeRef& at) {
  if (arguments[0]->node->kind == Kind::kNull) return *arguments[0];
  return resolver.temporary(resolver.value_of(parse_element(text_of(*arguments[0])), at), at);
}

const NodeRef& oc_create(Resolver& resolver, const References& arguments, const NodeRef& at) {
  const Node& value = *arguments[0]->node;
  if (value.kind == Kind::kNull) return *arguments[0];
  if (value.is_container()) return resolver.temporary(value, at, false);
  if (value.kind != Kind::kString) throw ResolveError("takes a map, a list or YAML text");
  const Node created = read_yaml_container(value.text, "oc.create");
  if (!created.is_container()) throw ResolveError("the text is neither a map nor a list");
  return resolver.temporary(created, at, false);
}

const NodeRef& oc_select(Resolver& resolver, const References& arguments, const NodeRef& at) {
  const NodeRef* found = resolver.selected(text_of(*arguments[0]), at);
  if (found != nullptr) return *found;
  return arguments.size() == 2 ? *arguments[1] : resolver.temporary(Node::null(), at);
}

const NodeRef& selected_map(Resolver& resolver, const NodeRef& argument, const NodeRef& at) {
  const std::string& path = text_of(argument);
  const NodeRef& found = found_or_fail(resolver.select(path, at, true), path);
  if (found.node->kind == Kind::kMap) return found;
  throw ResolveError(
      fmt::format("takes the key of a map; this one is of type {}", python_type(*found.node)));
}

const NodeRef& oc_dict_keys(Resolver& resolver, const References& arguments, const NodeRef& at) {
  Node list = Node::list();
  for (const Entry& entry : selected_map(resolver, *arguments[0], at).node->entries)
    list.items.push_back(entry.key);
  return resolver.temporary(std::move(list), at);
}

/// A list of references, so that each value is resolved where it is.
const NodeRef& oc_dict_values(Resolver& resolver, const References& arguments, const NodeRef& at) {
  const NodeRef& map = selected_map(resolver, *arguments[0], at);
  std::string path = arguments[0]->node->text;
  if (path.starts_with('.')) path.insert(0, 1, '.');
  Node list = Node::list();
  for (const Entry& entry : map.node->entries) {
    list.items.push_back(Node::of(fmt::format("${{{}.{}}}", path, python_str(entry.key))));
    list.items.back().place = at.node->place;
    parse_interpolated(list.items.back().text);  // a key may not fit into the grammar
  }
  return resolver.temporary(std::move(list), at, false);
}

/// The other key's value, and a word on stderr that this one's name is an old one.
const NodeRef& oc_deprecated(Resolver& resolver, const References& arguments, const NodeRef& at) {
  const std::string& path = text_of(*arguments[0]);
  std::string message = "'$OLD_KEY' is deprecated; use '$NEW_KEY'";
  if (arguments.size() == 2) message = text_of(*arguments[1]);
  const NodeRef& found = found_or_fail(resolver.select(path, at, false), path);
  replace_all(message, "$OLD_KEY", full_key(at));
  replace_all(message, "$NEW_KEY", path);
  std::fprintf(stderr, "warning: %s\n", one_line(message).c_str());
  return found;
}

const NodeRef& now(Resolver& resolver, const References& arguments, const NodeRef& at) {
  const std::time_t seconds = run_start_time();
  std::tm local{};
  localtime_r(&seconds, &local);
  std::array<char, 512> text{};
  const std::size_t n =
      std::strftime(text.data(), text.size(), text_of(*arguments[0]).c_str(), &local);
  return resolver.temporary(Node::of(std::string(text.data(), n)), at);
}

const NodeRef& hydra_value(Resolver& resolver, const References& arguments, const NodeRef& at) {
  const std::string& key = text_of(*arguments[0]);
  const NodeRef inside{nullptr, &resolver.hydra_block(), "", false};
  const NodeRef* found = resolver.selected(key.starts_with('.') ? key : "." + key, inside);
  return found == nullptr ? resolver.temporary(Node::null(), at) : *found;
}

struct ResolverFunction {
  std::string_view name;
  std::size_t fewest;
  std::size_t most;
  const NodeRef& (*run)(Resolver&, const References&, const NodeRef&);
};

constexpr std::array<ResolverFunction, 9> kResolverFunctions = {
    {{"oc.env", 1, 2, oc_env},
     {"oc.decode", 1, 1, oc_decode},
     {"oc.select", 1, 2, oc_select},
     {"oc.create", 1, 1, oc_create},
     {"oc.dict.keys", 1, 1, oc_dict_keys},
     {"oc.dict.values", 1, 1, oc_dict_values},
     {"oc.deprecated", 1, 2, oc_deprecated},
     {"now", 1, 1, now},
     {"hydra", 1, 1, hydra_value}}};

}  // namespace

const NodeRef& call_resolver(Resolver& resolver, const std::string& name,
                             const References& arguments, const NodeRef& at) {
  std::vector<std::string_view> names;
  for (const auto& [known, fewest, most, run] : kResolverFunctions) {
    names.push_back(known);
    if (known != name) continue;
    if (arguments.size() < fewest || arguments.size() > most) {
      throw ResolveError(fmt::format("{} takes {}{} argument{}, got {}", name,
                                     most > fewest ? "1 or " : "", most, most > 1 ? "s" : "",
                                     arguments.size()));
    }
    try {
      return run(resolver, arguments, at);
    } catch (const ResolveError& error) {
      throw ResolveError(fmt::format("{}: {}", name, error.what()));
    }
  }
  throw ResolveError(fmt::format("unknown resolver '{}'; known: {}", name, fmt::join(names, ", ")));
}

}  // namespace ddp::train
