#include "launcher/process/oom_watch.h"

#include <filesystem>
#include <fstream>
#include "tests/support/catch.h"

#include "tests/support/temp_folder.h"

namespace ddp::launch {
namespace {

using Catch::Contains;

void put(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

TEST_CASE("the out-of-memory counters are read from cgroup v2") {
  const test::TempFolder root;
  put(root.path() + "/proc/self/cgroup", "0::/job.slice\n");
  put(root.path() + "/proc/vmstat", "pgfault 12\noom_kill 7\n");
  put(root.path() + "/sys/fs/cgroup/job.slice/memory.events", "oom 5\noom_kill 3\n");
  put(root.path() + "/sys/fs/cgroup/job.slice/memory.max", "536870912\n");
  const OomCounts counts = OomCounts::read(root.path());
  CHECK(counts.cgroup == 3);
  CHECK(counts.machine == 7);
  CHECK(counts.limit == "512 MiB");
  put(root.path() + "/proc/self/cgroup", "0::/job.slice/step/task\n");
  put(root.path() + "/sys/fs/cgroup/job.slice/step/task/memory.max", "max\n");
  put(root.path() + "/sys/fs/cgroup/job.slice/step/task/memory.events.local", "oom_kill 1\n");
  CHECK(OomCounts::read(root.path()).limit == "512 MiB");
}

TEST_CASE("kills in a cgroup below are not those of this job") {
  const test::TempFolder root;
  put(root.path() + "/proc/self/cgroup", "0::/\n");
  put(root.path() + "/sys/fs/cgroup/memory.events", "oom_kill 3\n");
  put(root.path() + "/sys/fs/cgroup/memory.events.local", "oom_kill 1\n");
  CHECK(OomCounts::read(root.path()).cgroup == 1);
}

TEST_CASE("the out-of-memory counters are read from cgroup v1") {
  const test::TempFolder root;
  put(root.path() + "/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/ab\n");
  put(root.path() + "/sys/fs/cgroup/memory/docker/ab/memory.oom_control",
      "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
  put(root.path() + "/sys/fs/cgroup/memory/docker/ab/memory.limit_in_bytes",
      "9223372036854771712\n");
  const OomCounts counts = OomCounts::read(root.path());
  CHECK(counts.cgroup == 2);
  CHECK_FALSE(counts.machine);
  CHECK(counts.limit.empty());
}

TEST_CASE("a SIGKILL is laid to the out-of-memory killer only when a counter has moved") {
  const OomCounts before{1, 4, "512 MiB"};
  CHECK_THAT(oom_verdict(before, {2, 5, "512 MiB"}),
             Contains("out of memory") && Contains("+1 in its cgroup, memory limit 512 MiB"));
  CHECK_THAT(oom_verdict(before, {1, 6, ""}), Contains("on this machine (+2)"));
  CHECK_THAT(oom_verdict(before, before), Contains("kill -9"));
  CHECK(oom_verdict({}, {}).empty());
  CHECK(oom_kills_between(before, {3, 9, "512 MiB"}) ==
        "out of memory: the kernel killed a process in this job's cgroup (oom_kill +2 in its "
        "cgroup, memory "
        "limit 512 MiB)");
  CHECK(oom_kills_between(before, {1, 9, ""}).empty());
  CHECK(oom_kills_between({}, {}).empty());
}

}  // namespace
}  // namespace ddp::launch
