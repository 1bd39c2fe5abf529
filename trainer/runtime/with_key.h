// Errors under the name that the user knows what is wrong by.
#pragma once

#include <fmt/format.h>

#include <string_view>

#include "trainer/runtime/error.h"

namespace ddp::train {

/// Runs `work`. A UserError that it throws begins with `key`: a key, an option or a place.
template <typename Work>
auto with_key(std::string_view key, const Work& work) {
  try {
    return work();
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}: {}", key, error.what()));
  }
}

}  // namespace ddp::train
