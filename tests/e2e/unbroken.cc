#include "tests/e2e/unbroken.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <set>

#include "tests/support/catch.h"

#include "tests/e2e/saved_state.h"

namespace ddp::test {
namespace {

namespace fs = std::filesystem;

/// Held by one process at a time, until the end of the scope.
class Lock {
 public:
  explicit Lock(const std::string& path)
      : fd_(::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666)) {
    while (fd_ >= 0 && ::flock(fd_, LOCK_EX) != 0) {
    }
  }
  ~Lock() {
    if (fd_ >= 0) ::close(fd_);
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  int fd_;
};

std::string version_of(const std::string& program) {
  return program + " " + std::to_string(fs::file_size(program)) + " " +
         std::to_string(fs::last_write_time(program).time_since_epoch().count()) + "\n";
}

}  // namespace

// A copy whose `out` is missing was cut short; one of other programs is replaced.
std::string run_once(const Workspace& place, const ChildOptions& options) {
  std::set<std::string> files;
  for (const auto& entry : fs::directory_iterator(place.path()))
    if (entry.is_regular_file()) files.insert(entry.path().filename());
  std::string task;
  for (const std::string& word : options.argv) task += word + '\n';
  for (const std::string& name : files) task += name + '\n' + read_bytes(place / name);
  const fs::path kept = fs::path(DDP_E2E_RUNS) / std::to_string(std::hash<std::string>()(task));
  fs::create_directories(kept.parent_path());
  const Lock lock(kept.string() + ".lock");
  const std::string made_by = version_of(trainer_program()) + version_of(ddp_run_program()) + task;
  const auto all = fs::copy_options::recursive | fs::copy_options::overwrite_existing;
  if (fs::exists(kept / "out") && read_bytes(kept / "made_by") == made_by) {
    fs::copy(kept / "run", place.path(), all);
    return read_bytes(kept / "out");
  }
  const std::string out = succeed(options).out;
  fs::remove_all(kept);
  fs::create_directories(kept);
  fs::copy(place.path(), kept / "run", all);
  std::ofstream(kept / "made_by", std::ios::binary) << made_by;
  std::ofstream(kept / "out", std::ios::binary) << out;
  return out;
}

Unbroken::Unbroken(int ranks)
    : out(run_once(*this, ranks == 0 ? alone(*this) : launched(*this, ranks))) {}

}  // namespace ddp::test
