#include "trainer/parallel/device/device_progress.h"

#include <deque>
#include <mutex>
#include <utility>

namespace ddp::train {
namespace {

struct Part {
  ReadyEvent end;
  bool own = false;
};

/// Those that the device has not come to the end of, the first ones first.
struct Parts {
  std::mutex mutex;
  std::deque<Part> queued;

  void drop_passed() {
    while (!queued.empty() && queued.front().end->passed()) queued.pop_front();
  }
};

// Never destroyed: events must not outlive CUDA.
Parts& parts() {
  static auto* value = new Parts;
  return *value;
}

void add(Part part) {
  if (!part.end) return;
  const std::lock_guard lock(parts().mutex);
  parts().drop_passed();
  parts().queued.push_back(std::move(part));
}

}  // namespace

void DeviceProgress::own_work_ends_here(torch::Device device) {
  add({record_ready(device), /*own=*/true});
}

void DeviceProgress::collectives_end_at(const ReadyEvent& mark) { add({mark, /*own=*/false}); }

bool DeviceProgress::at_own_work() {
  const std::lock_guard lock(parts().mutex);
  parts().drop_passed();
  return !parts().queued.empty() && parts().queued.front().own;
}

}  // namespace ddp::train
