// ddp-run with stub workers, as the process tests start it.
#pragma once

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/child_program.h"
#include "tests/support/temp_folder.h"

namespace ddp::test {

inline const std::string kDdpRun = DDP_RUN;
inline const std::string kStub = DDP_STUB_WORKER;
/// For what takes milliseconds; a starved machine shall not fail the test.
inline constexpr std::chrono::seconds kSoon{20};

/// ddp-run [options] stub_worker [actions]; TMPDIR is a folder of the test's own.
inline ChildOptions stub_job(const TempFolder& tmp, const std::vector<std::string>& options,
                             const std::vector<std::string>& actions) {
  ChildOptions child;
  child.argv = {kDdpRun};
  child.argv.insert(child.argv.end(), options.begin(), options.end());
  child.argv.push_back(kStub);
  child.argv.insert(child.argv.end(), actions.begin(), actions.end());
  child.set = {{"TMPDIR", tmp.path()}, {"OMP_NUM_THREADS", "1"}};
  return child;
}

/// The same of a ddp-run next to which the stub worker is installed as trainer.
inline ChildOptions trainer_job(const TempFolder& tmp, const std::vector<std::string>& options,
                                const std::vector<std::string>& actions) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(tmp.path()) / "installed";
  if (fs::create_directory(folder)) {
    fs::copy_file(kDdpRun, folder / "ddp-run");
    fs::create_symlink(kStub, folder / "trainer");
  }
  ChildOptions child = stub_job(tmp, options, actions);
  child.argv.front() = folder / "ddp-run";
  return child;
}

inline std::string text_of(const std::string& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// The process in which this agent serves the workers' store; 0: none.
inline pid_t store_of(pid_t agent) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    if (entry.path().filename().string().find_first_not_of("0123456789") != std::string::npos)
      continue;
    std::ifstream file(entry.path() / "stat");
    pid_t pid = 0, parent = 0;
    std::string name, state;
    if (file >> pid >> name >> state >> parent && name == "(ddp-store)" && parent == agent)
      return pid;
  }
  return 0;
}

/// The number after `words` in the line that contains them for the n-th time, for which it waits.
inline pid_t pid_after(ChildProgram& job, const std::string& words, int times = 1) {
  const std::string line = job.wait_for(words + " ", times);
  return std::stoi(line.substr(line.find(words + " ") + words.size() + 1));
}

/// The process that runs the agent of a job whose worker has said its "parent".
inline pid_t agent_of(ChildProgram& job) { return pid_after(job, "parent"); }

/// In a user and a mount namespace of its own, and in those for which unshare(1) has `more`.
inline ChildOptions in_namespace(ChildOptions program, const std::vector<std::string>& more = {}) {
  std::vector<std::string> space{"unshare", "--user", "--map-root-user", "--mount"};
  space.insert(space.end(), more.begin(), more.end());
  program.argv.insert(program.argv.begin(), space.begin(), space.end());
  return program;
}

/// Nothing of ddp-run's is left in its TMPDIR (ThreadSanitizer leaves files of its own there).
inline bool nothing_left(const TempFolder& tmp) {
  for (const auto& entry : std::filesystem::directory_iterator(tmp.path())) {
    if (entry.path().filename().string().rfind("ddp-run", 0) == 0) return false;
  }
  return true;
}

}  // namespace ddp::test
