// On a host of --hosts, standard input, which comes through ssh, takes the place of a parent
// process: each line is the name of a signal to forward; end-of-file means that the ddp-run that
// started this one has exited, and ends the job.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "launcher/base/system/poll_handler.h"

namespace ddp::launch {

/// Removes whole lines from `text` and returns the signals listed in them.
std::vector<int> signals_in(std::string& text);

class Lifeline : public PollHandler {
 public:
  /// `fd` is not owned. Signals go to the guardian, this process's parent, as if sent by the user.
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
