// Gloo for CPU tensors. Only gloo_backend.cc includes gloo's headers (TOOLCHAIN: Debian's are older
// than the ones inside torch; classes are created there and used only through c10d::Backend).
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <string>

namespace ddp::train {

/// `address`: where this rank listens for the others; 127.0.0.1 if all are on this machine. Empty:
/// the address that the host's name resolves to. GLOO_SOCKET_IFNAME, an interface, takes precedence
/// unless the address is loopback.
c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                    int rank, int size,
                                                    std::chrono::milliseconds timeout,
                                                    const std::string& address);

}  // namespace ddp::train
