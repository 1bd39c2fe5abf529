// Resolves a host name without blocking, with getent in a child process: the system's name services
// (files, DNS, LDAP) are plug-ins of the C library, which a statically linked ddp-run cannot load.
#pragma once

#include <string>
#include <vector>

#include "launcher/base/system/poll_handler.h"

namespace ddp::launch {

class NameLookup {
 public:
  explicit NameLookup(const std::string& host);
  ~NameLookup();
  NameLookup(const NameLookup&) = delete;
  NameLookup& operator=(const NameLookup&) = delete;

  /// Descriptor to poll for input; -1: done.
  int fd() const { return fd_; }
  void handle();
  bool done() const { return fd_ < 0; }
  /// Numeric addresses in order of preference; empty: the name is unknown.
  std::vector<std::string> addresses() const;
  /// Whether getent could not be started: only localhost is known then.
  bool lacks_getent() const { return lacks_getent_; }

 private:
  int fd_ = -1;
  int pid_ = 0;
  bool lacks_getent_ = false;
  std::string output_;
};

/// Returns the addresses in the output of `getent ahosts`, each once. Pure.
std::vector<std::string> addresses_in(const std::string& output);

}  // namespace ddp::launch
