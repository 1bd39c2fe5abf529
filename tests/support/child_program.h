// A program under test: started with pipes, waited for by events with a bound, dead at the end of
// the test.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace ddp::test {

struct ChildOptions {
  std::vector<std::string> argv;
  std::map<std::string, std::string> set{};  // environment, on top of the test's own
  std::vector<std::string> unset{};
  std::vector<int> ignore{};  // signals that the program starts with ignored
  std::string folder{};       // working folder; empty: the test's
  bool own_group = false;
};

/// `/bin/sh -c script`, in which "$@" is the program.
ChildOptions in_shell(const std::string& script, ChildOptions program);

class ChildProgram {
 public:
  using Time = std::chrono::milliseconds;
  static constexpr Time kBound{90'000};

  explicit ChildProgram(const ChildOptions& options);
  ~ChildProgram();
  ChildProgram(const ChildProgram&) = delete;
  ChildProgram& operator=(const ChildProgram&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;

  /// Waits until a whole line of stdout or stderr holds `text`, `times` times; throws with all
  /// output when it does not come. Returns the last such line.
  std::string wait_for(const std::string& text, int times = 1, Time bound = kBound);
  /// Exit code, or -signal.
  int wait_exit(Time bound = kBound);
  /// Waits until nobody holds the other ends of stdout and stderr: no descendant is left.
  void wait_all_gone(Time bound = kBound);

  const std::string& out() const { return text_[0]; }
  const std::string& err() const { return text_[1]; }
  std::vector<std::string> out_lines() const;
  std::vector<std::string> err_lines() const;

 private:
  bool read_more(std::chrono::steady_clock::time_point deadline);
  [[noreturn]] void give_up(const std::string& what) const;

  pid_t pid_ = 0;
  bool reaped_ = false;
  int pipes_[2] = {-1, -1};
  std::string text_[2];
};

/// Stops a process; it continues at the end of the scope at the latest, however the test ends: one
/// that stays stopped would outlive the tests.
class Paused {
 public:
  explicit Paused(pid_t pid);
  ~Paused();
  Paused(const Paused&) = delete;
  Paused& operator=(const Paused&) = delete;
  void resume();

 private:
  pid_t pid_;
};

struct Finished {
  int exit = 0;  // code, or -signal
  std::string out;
  std::string err;
};

/// Runs to the end, all descendants included.
Finished run_to_end(const ChildOptions& options);

/// Whether a program of this name is on PATH.
bool has_program(const std::string& name);

/// Whether the signal was sent to the process and none of its threads has taken it yet.
bool is_pending(pid_t pid, int signal);

/// For what gives no event; throws when it does not hold within `bound`.
void wait_until(const std::function<bool()>& holds,
                ChildProgram::Time bound = ChildProgram::kBound);
/// Throws when the file does not come within ChildProgram::kBound.
void wait_for_file(const std::string& path);

std::vector<std::string> lines_of(const std::string& text);

}  // namespace ddp::test
