#include <cstdlib>

#include "launcher/base/system/cgroup.h"
#include "launcher/plan/gpus.h"
#include "launcher/worker_contract.h"
#include "tests/launcher/command_line.h"
#include "tests/launcher/ddp_run.h"
#include "tests/support/temp_folder.h"

namespace ddp::launch {
namespace {

using Catch::Contains;
using test::ChildOptions;
using test::kDdpRun;
using test::lines_of;
using test::run_to_end;
using test::TempFolder;

MachineView fake_machine(const TempFolder& root, int listed, int nodes,
                         std::optional<std::string> visible = {}) {
  for (int gpu = 0; gpu < listed; ++gpu) {
    root.write("proc/driver/nvidia/gpus/0000:0" + std::to_string(gpu) + ":00.0/information", "");
  }
  for (int gpu = 0; gpu < nodes; ++gpu) root.write("dev/nvidia" + std::to_string(gpu), "");
  root.write("dev/nvidiactl", "");
  root.write("dev/nvidia-uvm", "");
  return {root.path(), std::move(visible), 6};
}

std::string size_complaint(const std::string& value, const MachineView& machine) {
  return problem_of([&] { local_world_size(value, machine); });
}

std::optional<int> quota_of(const std::string& cgroups, const std::string& file,
                            const std::string& text) {
  const TempFolder root;
  root.write("proc/self/cgroup", cgroups);
  root.write("sys/fs/cgroup/" + file, text);
  root.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "50000\n");
  return cpu_quota(root.path());
}

TEST_CASE("the CPU quota is that of the cgroup, of v2 or v1, or of one above it") {
  CHECK(quota_of("0::/a/b\n", "a/b/cpu.max", "250000 100000\n") == 2);
  CHECK(quota_of("0::/a/b\n", "a/cpu.max", "50000 100000\n") == 1);
  CHECK(quota_of("0::/host/path\n", "cpu.max", "300000 100000\n") == 3);  // seen in a container
  CHECK(quota_of("0::/a\n", "a/cpu.max", "max 100000\n") == std::nullopt);
  CHECK(quota_of("3:cpu,cpuacct:/\n0::/\n", "cpu/cpu.cfs_quota_us", "200000\n") == 4);
  CHECK(quota_of("3:cpu:/host\n", "cpu/cpu.cfs_quota_us", "-1\n") == std::nullopt);
  CHECK(quota_of("", "none", "") == std::nullopt);
}

TEST_CASE("a limit of processes is reported once it is reached, of v2 or v1, or of one above") {
  const TempFolder root;
  root.write("proc/self/cgroup", "8:pids:/x/y\n0::/a\n");
  root.write("sys/fs/cgroup/a/pids.max", "max\n");
  root.write("sys/fs/cgroup/a/pids.current", "9\n");
  root.write("sys/fs/cgroup/pids/x/pids.max", "64\n");
  root.write("sys/fs/cgroup/pids/x/pids.current", "63\n");
  CHECK(reached_pids_limit(root.path()).empty());
  root.write("sys/fs/cgroup/pids/x/pids.current", "64\n");
  CHECK(reached_pids_limit(root.path()) == root.path() + "/sys/fs/cgroup/pids/x/pids.max (now 64)");
}

TEST_CASE("the workers of --nproc-per-node=cpu and their threads follow the quota") {
  const TempFolder root;
  root.write("proc/self/cgroup", "0::/\n");
  root.write("sys/fs/cgroup/cpu.max", "100000 100000\n");
  ChildOptions job;
  job.argv = {kDdpRun, "--dry-run", "--nproc-per-node=cpu", "true"};
  job.set[kDeviceRoot] = root.path();
  CHECK(lines_of(run_to_end(job).out).size() == 1);
  job = test::stub_job(root, {"--nproc-per-node=2"}, {"env=OMP_NUM_THREADS"});
  job.set = {{kDeviceRoot, root.path()}, {"TMPDIR", root.path()}};
  job.unset = {"OMP_NUM_THREADS"};
  CHECK(run_to_end(job).out == "OMP_NUM_THREADS=1\nOMP_NUM_THREADS=1\n");
}

TEST_CASE("a number of workers is taken as it is") {
  const TempFolder root;
  CHECK(local_world_size("3", fake_machine(root, 0, 0)) == 3);
}

TEST_CASE("GPUs are counted by the driver's files") {
  const TempFolder all, driver_only, fresh_host, nodes_only, container;
  fresh_host.write("usr/bin/nvidia-modprobe", "", true);
  CHECK(count_gpus(fake_machine(all, 4, 4)) == 4);
  CHECK(count_gpus(fake_machine(driver_only, 2, 0)) == 0);  // a container that was given none
  CHECK(count_gpus(fake_machine(fresh_host, 2, 0)) == 2);   // CUDA will make the device files
  CHECK(count_gpus(fake_machine(nodes_only, 0, 3)) == 3);
  CHECK(count_gpus(fake_machine(container, 8, 2)) == 2);
}

TEST_CASE("each worker's GPU is an entry of CUDA_VISIBLE_DEVICES, else one of the machine's") {
  const TempFolder none, two;
  const auto gpus = [](const MachineView& machine) {
    return gpu_of_each_worker(machine, 2, "virtual-local-rank");
  };
  CHECK(gpus(fake_machine(none, 0, 0, " 7 ,GPU-9")) == std::vector<std::string>{"7", "GPU-9"});
  CHECK(gpus(fake_machine(none, 0, 0)) == std::vector<std::string>{"0", "1"});
  CHECK(gpus(fake_machine(two, 2, 2)) == std::vector<std::string>{"0", "1"});
  CHECK_THROWS_WITH(gpu_of_each_worker(fake_machine(two, 2, 2), 3, "x"),
                    Catch::StartsWith("--x needs a GPU for each of 3 workers, but only 2 are"));
  CHECK_THROWS_WITH(gpus(fake_machine(two, 2, 2, "0,,1")), Contains("only 1 is visible"));
}

TEST_CASE("CUDA_VISIBLE_DEVICES narrows the GPUs as CUDA does") {
  const auto count = [](const char* visible) {
    const TempFolder root;
    return count_gpus(fake_machine(root, 4, 4, visible));
  };
  CHECK(count("0,2") == 2);
  CHECK(count(" 3 , 1 ") == 2);
  CHECK(count("") == 0);
  CHECK(count("-1") == 0);
  CHECK(count("0,-1,2") == 1);
  CHECK(count("0,9,1") == 1);
  CHECK(count("0,abc,1") == 1);
  CHECK(count("1,1") == 0);
  CHECK(count("GPU-0aa1,GPU-77bc,GPU-9") == 3);
  CHECK(count("MIG-0aa1,MIG-GPU-7/1/0") == 2);
}

TEST_CASE("auto takes GPUs and else CPUs, cpu takes CPUs") {
  const TempFolder with, without;
  CHECK(local_world_size("auto", fake_machine(with, 2, 2)) == 2);
  CHECK(local_world_size("gpu", fake_machine(with, 2, 2)) == 2);
  CHECK(local_world_size("auto", fake_machine(without, 0, 0)) == 6);
  CHECK(local_world_size("cpu", fake_machine(with, 2, 2)) == 6);
}

TEST_CASE("no GPU, no worker or nonsense is one line with the remedy") {
  const TempFolder none, hidden;
  const auto bare = fake_machine(none, 0, 0);
  CHECK(size_complaint("gpu", bare) ==
        "--nproc_per_node=gpu, but no NVIDIA GPU was found; use cpu or a number");
  CHECK(size_complaint("gpu", fake_machine(hidden, 2, 2, ""))
            .find("CUDA_VISIBLE_DEVICES='' hides every GPU") != std::string::npos);
  for (const char* value : {"0", "4097", "-2", "", "two", "2.5", "99999999999"}) {
    CHECK(size_complaint(value, bare).find("must be a number from 1 to 4096, gpu, cpu or auto") !=
          std::string::npos);
  }
}

TEST_CASE(
    "of GPUs that are cut into MIG instances CUDA sees one instance, if no whole GPU is there") {
  const TempFolder mixed, all_cut;
  for (const char* gpu : {"gpu0", "gpu1"}) {
    all_cut.write(std::string("proc/driver/nvidia/capabilities/") + gpu + "/mig/gi1/ci0/access",
                  "");
  }
  mixed.write("proc/driver/nvidia/capabilities/gpu0/mig/gi1/ci0/access", "");
  mixed.write("proc/driver/nvidia/capabilities/gpu1/mig/config", "");
  CHECK(count_gpus(fake_machine(mixed, 4, 4)) == 3);
  CHECK(count_gpus(fake_machine(all_cut, 2, 2)) == 1);
  CHECK(count_gpus(fake_machine(all_cut, 2, 2, "MIG-a,MIG-b")) == 2);
}

TEST_CASE("on AMD machines HIP_VISIBLE_DEVICES says which GPUs are given out, as in torchrun") {
  MachineView machine;
  machine.cuda_visible_devices = "0,1";
  machine.hip_visible_devices = "5, 3";
  CHECK(gpu_of_each_worker(machine, 2, "virtual-local-rank") == std::vector<std::string>{"5", "3"});
  CHECK_THROWS_WITH(gpu_of_each_worker(machine, 3, "virtual-local-rank"),
                    Contains("but only 2 are"));
}

TEST_CASE("DDP_DEVICE_ROOT names a folder in place of / where the GPUs' files are") {
  const TempFolder root;
  const auto gpus_of_this_process = [] {
    MachineView machine = MachineView::of_this_process();
    machine.cuda_visible_devices.reset();
    return count_gpus(machine);
  };
  fake_machine(root, 0, 5);
  ::setenv(kDeviceRoot, root.path().c_str(), 1);
  const int fakes = gpus_of_this_process();
  ::unsetenv(kDeviceRoot);
  CHECK(fakes == 5);
  CHECK(MachineView::of_this_process().root.empty());
}

TEST_CASE("this process has at least one CPU") { CHECK(MachineView::of_this_process().cpus >= 1); }

}  // namespace
}  // namespace ddp::launch
