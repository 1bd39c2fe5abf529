#include "launcher/plan/numa_binding.h"

#include "tests/support/catch.h"

#include "launcher/base/errors.h"
#include "launcher/plan/cpus.h"
#include "tests/support/temp_folder.h"

namespace ddp::launch {
namespace {

using test::TempFolder;
using Cpus = std::vector<int>;

// Two sockets of one node each, 4 cores of 2 threads in each (threads of core c: c and c + 8),
// caches of 2 cores; GPUs 0 and 1 at node 1, GPU 2 at node 0.
NumaView two_sockets(const TempFolder& root) {
  const std::string system = "sys/devices/system/";
  root.write(system + "node/node0/cpulist", "0-3,8-11\n");
  root.write(system + "node/node1/cpulist", "4-7,12-15\n");
  for (int cpu = 0; cpu < 16; ++cpu) {
    const int core = cpu % 8;
    const std::string folder = system + "cpu/cpu" + std::to_string(cpu);
    const auto pair = [](int first) {
      return std::to_string(first) + "," + std::to_string(first + 8);
    };
    root.write(folder + "/topology/thread_siblings_list", pair(core) + "\n");
    root.write(folder + "/topology/physical_package_id", core < 4 ? "0\n" : "1\n");
    root.write(folder + "/cache/index0/type", "Data\n");
    root.write(folder + "/cache/index0/level", "1\n");
    root.write(folder + "/cache/index0/shared_cpu_list", pair(core) + "\n");
    root.write(folder + "/cache/index3/type", "Unified\n");
    root.write(folder + "/cache/index3/level", "3\n");
    root.write(folder + "/cache/index3/shared_cpu_list",
               pair(core / 2 * 2) + "," + pair(core / 2 * 2 + 1) + "\n");
  }
  const char* addresses[] = {"0000:0a:00.0", "0000:0b:00.0", "0000:0c:00.0"};
  for (int gpu = 0; gpu < 3; ++gpu) {
    const std::string address = addresses[gpu];
    root.write("proc/driver/nvidia/gpus/" + address + "/information",
               "GPU UUID: \t GPU-" + std::to_string(gpu) + "abc\n");
    root.write("sys/bus/pci/devices/" + address + "/numa_node", gpu == 2 ? "0\n" : "1\n");
  }
  NumaView view{root.path(), {}};
  for (int cpu = 0; cpu < 16; ++cpu) view.affinity.push_back(cpu);
  return view;
}

TEST_CASE("lists of CPUs are read as the kernel writes them") {
  CHECK(parse_cpu_list("0-3,8\n") == Cpus{0, 1, 2, 3, 8});
  CHECK(parse_cpu_list("").empty());
  CHECK(parse_cpu_list("x,2") == Cpus{2});
  CHECK(parse_cpu_list("0-99999999999").size() <= 65537);
}

TEST_CASE("a GPU's node is found by index and by UUID") {
  const TempFolder root;
  const NumaView view = two_sockets(root);
  CHECK(numa_node_of_gpu("0", view) == 1);
  CHECK(numa_node_of_gpu("2", view) == 0);
  CHECK(numa_node_of_gpu("GPU-1abc", view) == 1);
  CHECK_FALSE(numa_node_of_gpu("MIG-x", view));
  CHECK_THROWS_AS(bind_to_numa(NumaBinding::kNode, {"0", "MIG-x"}, 2, view), LaunchError);
  CHECK_FALSE(numa_node_of_gpu("7", view));
}

TEST_CASE("GPUs of which a container has no device file are not counted") {
  const TempFolder root;
  const NumaView view = two_sockets(root);
  for (const char* gpu : {"0a", "0b", "0c"}) {
    root.write("proc/driver/nvidia/gpus/0000:" + std::string(gpu) + ":00.0/information",
               "Device Minor: \t " + std::to_string(gpu[1] - 'a') + "\nGPU Excluded:\t No\n");
  }
  CHECK(numa_node_of_gpu("0", view) == 1);  // before the first use there are no such files
  root.write("dev/nvidia2", "");
  CHECK(numa_node_of_gpu("0", view) == 0);
  CHECK_FALSE(numa_node_of_gpu("1", view));
}

TEST_CASE("each mode of --numa-binding gives the CPUs that torchrun's would") {
  const TempFolder root;
  const NumaView view = two_sockets(root);
  const std::vector<std::string> gpus{"0", "1", "2"};
  CHECK(bind_to_numa(NumaBinding::kNode, gpus, 3, view) ==
        std::vector<Cpus>{{4, 5, 6, 7, 12, 13, 14, 15},
                          {4, 5, 6, 7, 12, 13, 14, 15},
                          {0, 1, 2, 3, 8, 9, 10, 11}});
  CHECK(bind_to_numa(NumaBinding::kSocket, gpus, 1, view) ==
        std::vector<Cpus>{{4, 5, 6, 7, 12, 13, 14, 15}});
  CHECK(bind_to_numa(NumaBinding::kExclusive, gpus, 3, view) ==
        std::vector<Cpus>{{4, 5, 12, 13}, {6, 7, 14, 15}, {0, 1, 2, 3, 8, 9, 10, 11}});
  CHECK(bind_to_numa(NumaBinding::kCoreComplex, gpus, 3, view) ==
        std::vector<Cpus>{{4, 5, 12, 13}, {6, 7, 14, 15}, {0, 1, 8, 9}});
}

TEST_CASE("only CPUs that ddp-run may use are given away") {
  const TempFolder root;
  NumaView view = two_sockets(root);
  view.affinity = {5, 6, 13};
  CHECK(bind_to_numa(NumaBinding::kExclusive, {"0", "1"}, 2, view) ==
        std::vector<Cpus>{{5, 13}, {6}});
  CHECK_THROWS_AS(bind_to_numa(NumaBinding::kExclusive, {"0", "0", "0"}, 3, view), LaunchError);
}

TEST_CASE("the threads of bound workers fit their CPUs") {
  CHECK(threads_that_fit({{0, 1, 2, 3}, {0, 1, 2, 3}, {4, 5, 6, 7, 8, 9}}, 3) == 2);
  CHECK(threads_that_fit({{0}, {0}}, 3) == 1);
  CHECK(threads_that_fit({{0, 1}}, 0) == 0);  // the user's own number
  CHECK(threads_that_fit({}, 3) == 3);
}

TEST_CASE("without GPUs the workers are dealt over the nodes") {
  const TempFolder root;
  const auto bound = bind_to_numa(NumaBinding::kNode, {}, 4, two_sockets(root));
  CHECK(bound[0] == Cpus{0, 1, 2, 3, 8, 9, 10, 11});
  CHECK(bound[1] == bound[0]);
  CHECK(bound[2] == Cpus{4, 5, 6, 7, 12, 13, 14, 15});
  CHECK(bound[3] == bound[2]);
}

}  // namespace
}  // namespace ddp::launch
