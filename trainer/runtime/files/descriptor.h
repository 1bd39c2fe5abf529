// A file descriptor that closes itself.
#pragma once

#include <unistd.h>

#include <utility>

namespace ddp::train {

/// Used as the number that it holds; negative: none.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }

  operator int() const { return fd_; }  // NOLINT(google-explicit-constructor): of system calls
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

}  // namespace ddp::train
