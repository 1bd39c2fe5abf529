#include "trainer/parallel/collectives/gloo_backend.h"

#include <cstdlib>

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

namespace ddp::train {

c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                    int rank, int size,
                                                    std::chrono::milliseconds timeout,
                                                    const std::string& address) {
  using c10d::ProcessGroupGloo;
  auto options = ProcessGroupGloo::Options::create(timeout);
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  if (interface != nullptr && *interface != '\0' && address != "127.0.0.1") {
    options->devices.push_back(ProcessGroupGloo::createDeviceForInterface(interface));
  } else if (!address.empty()) {
    options->devices.push_back(ProcessGroupGloo::createDeviceForHostname(address));
  } else {
    options->devices.push_back(ProcessGroupGloo::createDefaultDevice());
  }
  return c10::make_intrusive<ProcessGroupGloo>(store, rank, size, options);
}

}  // namespace ddp::train
