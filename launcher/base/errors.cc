#include "launcher/base/errors.h"

#include <system_error>

#include "launcher/worker_contract.h"

namespace ddp::launch {

void usage_error(const std::string& what) { throw LaunchError(kExitUsage, what); }

std::string error_text(int error_number) { return std::generic_category().message(error_number); }

}  // namespace ddp::launch
