// Resolves a host name without blocking: by getent, in a child process. ddp-run is statically
// linked, and the system's name services (files, DNS, LDAP) are plug-ins of the C library.
#pragma once

#include <string>
#include <vector>

#include "launcher/base/poll_handler.h"

namespace ddp::launch {

class NameLookup {
 public:
  explicit NameLookup(const std::string& host);
  ~NameLookup();
  NameLookup(const NameLookup&) = delete;
  NameLookup& operator=(const NameLookup&) = delete;

  /// Poll for input; -1: done.
  int fd() const { return fd_; }
  void handle();
  bool done() const { return fd_ < 0; }
  /// Numeric, in the order of preference; empty: the name is not known.
  std::vector<std::string> addresses() const;

 private:
  int fd_ = -1;
  int pid_ = 0;
  std::string output_;
};

/// The addresses in what `getent ahosts` prints, each once. Pure.
std::vector<std::string> addresses_in(const std::string& output);

}  // namespace ddp::launch
