// What a call of a test is refused with.
#pragma once

#include <string>

#include "trainer/runtime/error.h"

namespace ddp::test {

/// The message of the UserError that `call` throws; "" if it throws none.
template <class Call>
std::string user_error_of(const Call& call) {
  try {
    call();
  } catch (const train::UserError& error) {
    return error.what();
  }
  return "";
}

}  // namespace ddp::test
