// Decides where each worker's stdout and stderr go: --redirects, --tee, --local-ranks-filter,
// prefixes. Pure.
#pragma once

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "launcher/logs/line_prefix.h"
#include "launcher/logs/log_file.h"

namespace ddp::launch {

enum class StreamMode {
  kInherit,  // ddp-run's own
  kDiscard,  // /dev/null
  kFile,     // straight into a file
  kPump,     // through ddp-run, which copies
};

struct StreamPlan {
  StreamMode mode = StreamMode::kInherit;
  std::string file;      // File: the target; Pump: gets a copy of every byte; empty: none
  bool console = false;  // Pump: also to ddp-run's own stream
  bool by_line = false;  // Pump to the console: whole lines with a prefix, else raw bytes
  LinePrefix prefix;
  std::chrono::milliseconds fold{0};  // how long a line waits for its repeats; 0: no folding
  Rotation rotation;                  // of file
  std::vector<std::string> filters;   // Pump by line: lines that contain one of these ...
  std::string filter_file;            // ... are appended to this file
};

struct WorkerStreams {
  StreamPlan out;
  StreamPlan err;
};

/// "3" or "0:1,12:3": 1 stdout, 2 stderr, 3 both, for all local ranks or for some.
struct RankStreams {
  int all = 0;
  std::map<int, int> by_rank;
  int of(int local_rank) const;
  bool any() const;
};

struct LogOptions {
  RankStreams redirects;
  RankStreams tee;
  std::string prefix_template;  // empty: [${role_name}${local_rank}]:
  std::chrono::milliseconds fold{0};
  Rotation rotation;
  std::set<int> console_ranks;  // empty: all
  std::vector<std::string> stdout_filters;
  std::vector<std::string> stderr_filters;
  bool watched = false;     // all output passes through ddp-run: it counts as a sign of life
  bool own_stdout = false;  // ddp-run's stdout can be given to workers: see can_share_stdout()
  int report_lines = 18;  // last stderr lines shown in the failure report; 0: stderr is left alone
  bool wants_files() const {
    return redirects.any() || tee.any() || !stdout_filters.empty() || !stderr_filters.empty();
  }
  /// Whether all output of workers is on the console.
  bool shows_all_ranks() const { return !redirects.any() && console_ranks.empty(); }
  /// Whether everything in the files is on the console as well: only --tee was given.
  bool only_copies() const {
    return !redirects.any() && stdout_filters.empty() && stderr_filters.empty() &&
           console_ranks.empty() && rotation.max_bytes == 0;
  }
};

struct StreamPlace {
  PrefixPlace worker;
  std::string folder;          // this worker's, in this attempt
  std::string attempt_folder;  // for filtered lines of all workers
};

/// Returns whether workers may write to this descriptor of ddp-run directly: /dev/null and the
/// like, where no reader exits, no disk blocks and no line is torn.
bool can_share_stdout(int fd);

/// Returns where this worker's stdout and stderr go.
WorkerStreams plan_streams(const LogOptions& options, const StreamPlace& place);

}  // namespace ddp::launch
