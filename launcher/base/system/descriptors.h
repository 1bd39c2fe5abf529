// Open files: owning, creating and comparing descriptors. All are close-on-exec.
#pragma once

namespace ddp::launch {

/// Owns a descriptor, which may be -1: none.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

/// Closes it unless it is -1, and sets it to -1.
void close_descriptor(int& fd);

/// Closes all from `first` upwards, in a forked child.
void close_all_from(int first);

/// Both ends belong to the caller.
struct PipeEnds {
  int read = -1;
  int write = -1;
};

/// Throws LaunchError "cannot <purpose>: ..." if no descriptors are left.
PipeEnds open_pipe(const char* purpose);

/// Opens /dev/null. Throws LaunchError on failure: otherwise a stream that was to be closed would
/// stay connected to ddp-run's own.
int open_null_device(int flags);

/// Returns whether both refer to the same file, such as one terminal.
bool same_file(int a, int b);

}  // namespace ddp::launch
