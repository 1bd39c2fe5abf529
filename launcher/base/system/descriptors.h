// File descriptors: owned, closed, passed to another process, and how many there may be.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <utility>

namespace ddp::launch {

/// Owns a descriptor, which may be -1: none.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() { reset(); }
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  int get() const { return fd_; }
  /// Passes it to the caller, and owns none from now on.
  int release() { return std::exchange(fd_, -1); }
  void reset();

 private:
  int fd_;
};

/// Closes all from `first` upwards, in a forked child, now or `at_exec`. Makes system calls only.
void close_all_from(int first, bool at_exec = false);

struct PipeEnds {
  Descriptor read{};
  Descriptor write{};
};

/// Throws LaunchError "cannot <purpose>: ..." if no descriptors are left.
PipeEnds open_pipe(const char* purpose);

/// Opens /dev/null. Throws LaunchError on failure: otherwise a stream that was to be closed would
/// stay connected to ddp-run's own.
Descriptor open_null_device(int flags);

/// Returns two connected Unix sockets that keep messages apart; on failure none, with errno.
std::array<Descriptor, 2> socket_pair();

/// Returns whether both refer to the same file, such as one terminal.
bool same_file(int a, int b);

/// Returns the current soft limit.
std::size_t descriptor_limit();
/// Raises this process's soft limit to the hard limit.
void raise_descriptor_limit();
/// Undoes raise_descriptor_limit() in a child before exec. Makes system calls only.
void restore_descriptor_limit();

/// Sends copies of at most three descriptors over a Unix socket that keeps messages apart, with a
/// text, which is not empty: that would look like end-of-file. Never blocks. Returns false with
/// errno; EAGAIN: the socket is full.
bool pass_descriptors(int socket, std::initializer_list<int> fds, std::string text = "d");
/// Returns the next descriptor (close-on-exec); never blocks. Returns -1 with errno: EAGAIN if
/// there is none yet, 0 at end-of-file, EPROTO if a message carried none. `text`: the first 4 KiB
/// of its text.
int receive_descriptor(int socket, std::string* text = nullptr);

}  // namespace ddp::launch
