#include "trainer/app/exit_report.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <system_error>

#include "launcher/worker_contract.h"
#include "trainer/app/out_of_memory.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/error_file.h"
#include "trainer/runtime/files/foreign_json.h"
#include "trainer/runtime/group_error.h"
#include "trainer/runtime/log/line_writer.h"
#include "trainer/runtime/log/message.h"

namespace ddp::train {
namespace {

// Nobody may hold up the end of a rank that failed: the others wait for it.
void print_error(const std::string& message) {
  try {
    LineWriter({{STDERR_FILENO, "standard error"}})
        .write(STDERR_FILENO, "error: " + message + "\n");
  } catch (...) {  // no thread to be had
    std::fprintf(stderr, "error: %s\n", message.c_str());
  }
}

// The launcher stops rank 0 as soon as another rank has failed: it gets the time to report why. Any
// signal ends the wait, as rank 0's own end leads to one.
void let_rank_0_speak() {
  constexpr int kLongestMs = 500;
  ::poll(nullptr, 0, kLongestMs);
}

// A mistake in the configuration is the same on every rank: the first rank of a node says it once.
// A failure of the run is one rank's own.
int report(const std::string& whole_message, int exit_code, bool same_on_every_rank) {
  const std::string message = bounded_message(whole_message);
  write_error_file(message, exit_code);
  const char* local_rank = std::getenv(launch::kLocalRank);
  const char* error_file = std::getenv(launch::kErrorFile);
  const bool somebody_else_says_it = same_on_every_rank && local_rank != nullptr &&
                                     std::string(local_rank) != "0" && error_file != nullptr &&
                                     *error_file != '\0';
  if (somebody_else_says_it) {
    let_rank_0_speak();
  } else {
    print_error(message);
  }
  return exit_code;
}

// The first line: what torch appends to its messages is for its own developers. A connection that
// broke off means that another rank went first: its own message, or the launcher's, is the one to
// read.
std::string readable(const std::string& text) {
  for (const char* broken :
       {"Connection reset by peer", "Connection closed by peer", "Broken pipe"}) {
    if (text.find(broken) != std::string::npos) {
      return std::string("lost the connection to another rank (") + broken +
             "), which ended first; see its error";
    }
  }
  return plain_json_error(text.substr(0, text.find('\n')));
}

// Memory is lacking wherever no one has said more about it.
std::string readable(const std::exception& error) {
  if (const auto* file = dynamic_cast<const std::filesystem::filesystem_error*>(&error);
      file != nullptr && !file->path1().empty())
    return file->path1().string() + ": cannot be accessed: " + file->code().message();
  if (const auto* system = dynamic_cast<const std::system_error*>(&error);
      system != nullptr && system->code() == std::errc::resource_unavailable_try_again)
    return "cannot start a thread: memory or the number of threads allowed (ulimit -u, the "
           "cgroup's pids.max) is used up; raise the limit, or use fewer ranks and threads";
  if (!is_out_of_memory(error)) return readable(std::string(error.what()));
  const std::string asked = memory_asked_for(error.what());
  return fmt::format("out of memory{}; use a smaller model or batch, or a machine with more memory",
                     asked.empty() ? "" : fmt::format(": {} more were requested", asked));
}

// Whether the system refused a file for a reason that may pass before the next start: files that
// others had open, a disk or a server that failed. The reason is in the message on every rank, also
// where rank 0 found it and where a key was put before it.
bool is_transient(const std::string& message) {
  constexpr std::array kErrors = {EIO,    EMFILE,    ENFILE,    EAGAIN,    EBUSY,
                                  ESTALE, ETIMEDOUT, EREMOTEIO, EHOSTDOWN, ENOTCONN};
  return std::any_of(kErrors.begin(), kErrors.end(), [&](int error) {
    return message.find(fmt::format(": {}", std::strerror(error))) != std::string::npos ||
           message.find(fmt::format("[errno {}] ", error)) != std::string::npos;  // Arrow's
  });
}

std::string rank_prefix() {
  const char* rank = std::getenv(launch::kRank);
  return rank != nullptr ? "rank " + std::string(rank) + ": " : "";
}

}  // namespace

int report_current_exception() noexcept {
  try {
    throw;
  } catch (const UserError& error) {
    if (is_transient(error.what()))
      return report(rank_prefix() + error.what(), launch::kExitFailed, false);
    return report(error.what(), launch::kExitUsage, true);
  } catch (const FinalError& error) {
    return report(error.what(), launch::kExitFinal, true);
  } catch (const GroupError& error) {
    return report(error.what(), launch::kExitFailed, true);
  } catch (const RunError& error) {
    return report(error.what(), launch::kExitFailed, false);
  } catch (const std::exception& error) {
    return report(rank_prefix() + readable(error), launch::kExitFailed, false);
  } catch (...) {
    return report("unknown error", launch::kExitFailed, false);
  }
}

std::string current_exception_text() noexcept {
  try {
    throw;
  } catch (const UserError& error) {
    return error.what();
  } catch (const RunError& error) {
    return error.what();
  } catch (const std::exception& error) {
    return rank_prefix() + readable(error);
  } catch (...) {
    return "unknown error";
  }
}

void end_with_current_exception() noexcept {
  static std::atomic_flag ending;
  while (ending.test_and_set()) ::pause();
  const int code = report_current_exception();
  std::fflush(nullptr);
  std::_Exit(code);
}

void end_with_uncaught_exceptions() {
  std::set_terminate([] {
    if (!std::current_exception()) std::abort();
    end_with_current_exception();
  });
}

}  // namespace ddp::train
