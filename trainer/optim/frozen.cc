#include "trainer/optim/frozen.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <set>

#include "trainer/runtime/error.h"

namespace ddp::train {

std::vector<Parameter> freeze(const std::vector<Parameter>& parameters,
                              const std::vector<std::string>& patterns) {
  std::set<std::string> frozen;
  for (const auto& pattern : patterns) {
    bool any = false;
    for (const auto& p : parameters) {
      if (::fnmatch(pattern.c_str(), p.name.c_str(), 0) != 0) continue;
      frozen.insert(p.name);
      any = true;
    }
    if (!any) {
      throw UserError(fmt::format(
          "trainer_config.freeze: no parameter matches '{}'; their names look like {} and {}",
          pattern, parameters.front().name, parameters.back().name));
    }
  }
  std::vector<Parameter> trained;
  for (const auto& p : parameters) {
    p.tensor.set_requires_grad(!frozen.contains(p.name));
    if (!frozen.contains(p.name)) trained.push_back(p);
  }
  if (trained.empty())
    throw UserError("trainer_config.freeze: every parameter is frozen; leave some to train");
  return trained;
}

}  // namespace ddp::train
