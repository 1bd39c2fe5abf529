// The functions of interpolations: ${oc.env:NAME}, ${now:%Y} and so on.
#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "trainer/config/interpolation/resolver.h"
#include "trainer/config/yaml/yaml_reader.h"
#include "trainer/runtime/message.h"
#include "trainer/runtime/start_time.h"

namespace ddp::train {
namespace {

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos;
       at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

}  // namespace

const NodeRef& Resolver::call(const Expr& expr, const NodeRef& at) {
  const std::string name = joined(expr.children.front(), at, "the name of a resolver");
  Arguments arguments;
  for (std::size_t i = 1; i < expr.children.size(); ++i)
    arguments.push_back(&dereferenced(evaluate(expr.children[i], at)));
  struct Known {
    std::string_view name;
    std::size_t fewest;
    std::size_t most;
    const NodeRef& (Resolver::*run)(const Arguments&, const NodeRef&);
  };
  static constexpr std::array<Known, 9> kKnown = {
      {{"oc.env", 1, 2, &Resolver::oc_env},
       {"oc.decode", 1, 1, &Resolver::oc_decode},
       {"oc.select", 1, 2, &Resolver::oc_select},
       {"oc.create", 1, 1, &Resolver::oc_create},
       {"oc.dict.keys", 1, 1, &Resolver::oc_dict_keys},
       {"oc.dict.values", 1, 1, &Resolver::oc_dict_values},
       {"oc.deprecated", 1, 2, &Resolver::oc_deprecated},
       {"now", 1, 1, &Resolver::now},
       {"hydra", 1, 1, &Resolver::hydra_value}}};
  for (const Known& known : kKnown) {
    if (known.name != name) continue;
    if (arguments.size() < known.fewest || arguments.size() > known.most) {
      throw ResolveError(fmt::format("{} takes {} argument{}, got {}", name,
                                     known.most == known.fewest
                                         ? fmt::format("{}", known.most)
                                         : fmt::format("{} or {}", known.fewest, known.most),
                                     known.most == 1 ? "" : "s", arguments.size()));
    }
    return (this->*known.run)(arguments, at);
  }
  throw ResolveError(
      fmt::format("unknown resolver '{}'; known: oc.env, oc.decode, oc.select, "
                  "oc.create, oc.deprecated, oc.dict.keys, oc.dict.values, now and hydra",
                  name));
}

const std::string& Resolver::text_argument(const char* resolver, const NodeRef& argument) {
  if (argument.node->kind == Kind::kString) return argument.node->text;
  throw ResolveError(fmt::format("{} takes a string, not '{}' ({})", resolver,
                                 shown(python_str(*argument.node)), python_type(*argument.node)));
}

const NodeRef& Resolver::oc_env(const Arguments& arguments, const NodeRef& at) {
  const std::string& name = text_argument("oc.env", *arguments[0]);
  if (const char* value = std::getenv(name.c_str()))
    return temporary(Node::of(std::string(value)), at.parent, true);
  if (arguments.size() == 1)
    throw ResolveError(fmt::format(
        "environment variable {} is not set; set it or give a default: ${{oc.env:{},default}}",
        name, name));
  const Node& fallback = *arguments[1]->node;
  if (fallback.kind == Kind::kNull) return temporary(Node::null(), at.parent, true);
  return temporary(Node::of(python_str(fallback)), at.parent, true);
}

const NodeRef& Resolver::oc_decode(const Arguments& arguments, const NodeRef& at) {
  if (arguments[0]->node->kind == Kind::kNull) return *arguments[0];
  const std::string text = text_argument("oc.decode", *arguments[0]);
  return temporary(value_of(parse_element(text), at), at.parent, true);
}

const NodeRef& Resolver::oc_create(const Arguments& arguments, const NodeRef& at) {
  const Node& value = *arguments[0]->node;
  if (value.kind == Kind::kNull) return *arguments[0];
  if (value.is_container()) return temporary(value, at.parent, false);
  if (value.kind != Kind::kString) throw ResolveError("oc.create takes a map, a list or YAML text");
  const Node created = read_yaml_container(value.text, "oc.create");
  if (!created.is_container())
    throw ResolveError("oc.create: the text is neither a map nor a list");
  return temporary(created, at.parent, false);
}

const NodeRef& Resolver::oc_select(const Arguments& arguments, const NodeRef& at) {
  const NodeRef* found = selected(text_argument("oc.select", *arguments[0]), at);
  if (found != nullptr) return *found;
  if (arguments.size() == 2) return *arguments[1];
  return temporary(Node::null(), at.parent, true);
}

const NodeRef& Resolver::selected_map(const std::string& resolver, const NodeRef& argument,
                                      const NodeRef& at) {
  const std::string& path = text_argument(resolver.c_str(), argument);
  const NodeRef* found = nullptr;
  try {
    found = select(path, at, true);
  } catch (const std::domain_error&) {
    found = nullptr;
  }
  if (found == nullptr) throw ResolveError(fmt::format("key '{}' not found; check the name", path));
  if (found->node->kind != Kind::kMap) {
    throw ResolveError(
        fmt::format("{} takes the key of a map, not of a {}", resolver, python_type(*found->node)));
  }
  return *found;
}

const NodeRef& Resolver::oc_dict_keys(const Arguments& arguments, const NodeRef& at) {
  Node list = Node::list();
  for (const Entry& entry : selected_map("oc.dict.keys", *arguments[0], at).node->entries)
    list.items.push_back(entry.key);
  return temporary(std::move(list), at.parent, true);
}

const NodeRef& Resolver::oc_dict_values(const Arguments& arguments, const NodeRef& at) {
  const NodeRef& map = selected_map("oc.dict.values", *arguments[0], at);
  std::string path = arguments[0]->node->text;
  if (path.starts_with('.')) path.insert(0, 1, '.');
  Node list = Node::list();
  for (const Entry& entry : map.node->entries) {
    list.items.push_back(Node::of(fmt::format("${{{}.{}}}", path, python_str(entry.key))));
    list.items.back().place = at.node->place;
    parse_interpolated(list.items.back().text);  // a key may not fit into the grammar
  }
  return temporary(std::move(list), at.parent, false);
}

/// The other key's value, and a word on stderr that this one's name is an old one.
const NodeRef& Resolver::oc_deprecated(const Arguments& arguments, const NodeRef& at) {
  const std::string& path = text_argument("oc.deprecated", *arguments[0]);
  std::string message = "'$OLD_KEY' is deprecated; use '$NEW_KEY'";
  if (arguments.size() == 2) message = text_argument("oc.deprecated", *arguments[1]);
  const NodeRef* found = nullptr;
  try {
    found = select(path, at, false);
  } catch (const std::domain_error&) {
    found = nullptr;
  }
  if (found == nullptr) {
    throw ResolveError(
        fmt::format("{}: oc.deprecated: key '{}' not found; check the name", full_key(at), path));
  }
  replace_all(message, "$OLD_KEY", full_key(at));
  replace_all(message, "$NEW_KEY", path);
  std::fprintf(stderr, "warning: %s\n", one_line(message).c_str());
  return *found;
}

const NodeRef& Resolver::now(const Arguments& arguments, const NodeRef& at) {
  const std::string& format = text_argument("now", *arguments[0]);
  const std::time_t seconds = run_start_time();
  std::tm local{};
  localtime_r(&seconds, &local);
  std::array<char, 512> text{};
  const std::size_t n = std::strftime(text.data(), text.size(), format.c_str(), &local);
  return temporary(Node::of(std::string(text.data(), n)), at.parent, true);
}

const NodeRef& Resolver::hydra_value(const Arguments& arguments, const NodeRef& at) {
  const std::string& key = text_argument("hydra", *arguments[0]);
  if (composed_.node == nullptr)
    throw ResolveError("${hydra:} is not available here; use ${hydra.KEY}");
  const NodeRef& inside = add_ref({nullptr, step(composed_, "hydra"), "", false});
  const NodeRef* found = selected(key.starts_with('.') ? key : "." + key, inside);
  return found == nullptr ? temporary(Node::null(), at.parent, true) : *found;
}

}  // namespace ddp::train
