// On a host of --hosts: ssh's end of standard input takes the place of a parent process. Each line
// names a signal to pass on; its end means that the starting ddp-run is gone, and ends the job.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "launcher/base/poll_handler.h"

namespace ddp::launch {

/// Takes whole lines from `text` and leaves the rest; returns the signals that they name.
std::vector<int> signals_in(std::string& text);

class Lifeline : public PollHandler {
 public:
  /// `fd` is not owned. Signals go to the parent, the guardian, as if the user had sent them.
  explicit Lifeline(int fd);
  void add_poll_fds(std::vector<pollfd>& fds) const override;
  void handle(const std::vector<pollfd>& fds) override;

 private:
  void pass_on(int signal) const;

  int fd_;
  pid_t guardian_;
  std::string text_;
};

}  // namespace ddp::launch
