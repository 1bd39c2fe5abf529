#include "trainer/parallel/device/collective_wait.h"

#include <atomic>

namespace ddp::train {
namespace {

std::atomic<uint64_t> wait_in_progress{0};
uint64_t waits_begun = 0;  // these two: the training thread's alone
int waits_nested = 0;

}  // namespace

CollectiveWait::CollectiveWait() {
  if (waits_nested++ == 0) wait_in_progress = ++waits_begun;
}

CollectiveWait::~CollectiveWait() {
  if (--waits_nested == 0) wait_in_progress = 0;
}

uint64_t CollectiveWait::current() { return wait_in_progress; }

}  // namespace ddp::train
