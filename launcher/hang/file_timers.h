// Server for torch.distributed.elastic's FileTimerClient: workers write deadlines for scopes of
// code to a named pipe. Reports expired timers; signals no process itself.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "launcher/base/command.h"
#include "launcher/base/system/descriptors.h"
#include "launcher/base/system/poll_handler.h"

namespace ddp::launch {

struct ExpiredTimer {
  pid_t pid = 0;
  int signal = 0;     // requested by the process
  std::string scope;  // name of the scope that took too long
};

/// Returns the path of the pipe: the user's choice, or a file in the first non-empty entry of
/// `folders`; "" unless the user enabled timers. Throws LaunchError (2) if all entries are empty.
std::string timer_file(const Environment& environment, const std::vector<std::string>& folders);

class FileTimers : public PollHandler {
 public:
  /// Creates the pipe, replacing a stale one. Throws LaunchError (2).
  FileTimers(std::string path, std::function<void(const ExpiredTimer&)> expired);
  ~FileTimers() override;

  void add_poll_fds(std::vector<pollfd>& fds) const override;
  void handle(const std::vector<pollfd>& fds) override;

 private:
  struct Timer {
    double at = 0;  // Unix seconds
    int signal = 0;
  };

  void read_requests();
  void take(std::string_view line);
  void expire();
  void set_clock() const;

  std::string path_;
  std::function<void(const ExpiredTimer&)> expired_;
  Descriptor pipe_;
  Descriptor clock_;
  std::string rest_;  // the beginning of an unfinished line
  std::map<std::pair<pid_t, std::string>, Timer> timers_;
};

}  // namespace ddp::launch
