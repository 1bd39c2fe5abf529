// Gloo for CPU tensors. gloo_backend.cc alone sees gloo's headers (TOOLCHAIN: Debian's are older
// than the ones inside torch; classes are created there and used only through c10d::Backend).
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>

namespace ddp::train {

/// `loopback`: all ranks are on this machine, so listen on 127.0.0.1 only. Otherwise
/// GLOO_SOCKET_IFNAME names the interface, or the address that the host's name resolves to is used.
c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                    int rank, int size,
                                                    std::chrono::milliseconds timeout,
                                                    bool loopback);

}  // namespace ddp::train
