// The functions of interpolations: ${oc.env:NAME}, ${now:%Y} and so on.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstdlib>
#include <ctime>

#include "trainer/hydra/interpolation/resolver.h"
#include "trainer/runtime/log/message.h"
#include "trainer/runtime/process/start_time.h"

namespace ddp::train {
namespace {

using References = std::vector<const NodeRef*>;

const std::string& text_of(const NodeRef& argument) {
  if (argument.node->kind == Kind::kString) return argument.node->text;
  throw ResolveError(fmt::format("takes a string, not '{}' ({})", shown(python_str(*argument.node)),
                                 python_type(*argument.node)));
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

const NodeRef& oc_select(Resolver& resolver, const References& arguments, const NodeRef& at) {
  const NodeRef* found = resolver.selected(text_of(*arguments[0]), at);
  if (found != nullptr) return *found;
  return arguments.size() == 2 ? *arguments[1] : resolver.temporary(Node::null(), at);
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

constexpr std::array<ResolverFunction, 5> kResolverFunctions = {{{"oc.env", 1, 2, oc_env},
                                                                 {"oc.decode", 1, 1, oc_decode},
                                                                 {"oc.select", 1, 2, oc_select},
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
