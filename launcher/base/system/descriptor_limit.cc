#include "launcher/base/system/descriptor_limit.h"

#include <sys/resource.h>

namespace ddp::launch {
namespace {

rlimit original_limit{};
bool is_raised = false;

}  // namespace

std::size_t descriptor_limit() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 1024;
}

void raise_descriptor_limit() {
  rlimit limit{};
  if (is_raised || ::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max)
    return;
  original_limit = limit;
  limit.rlim_cur = limit.rlim_max;
  is_raised = ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

void restore_descriptor_limit() {
  if (is_raised) ::setrlimit(RLIMIT_NOFILE, &original_limit);
}

}  // namespace ddp::launch
