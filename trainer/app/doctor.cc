#include <ATen/Version.h>
#include <fmt/format.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "launcher/worker_contract.h"
#include "trainer/app/modes.h"
#include "trainer/app/standard_output.h"
#include "trainer/metrics/text.h"
#include "trainer/parallel/collectives/collectives.h"
#include "trainer/parallel/collectives/process_group.h"
#include "trainer/parallel/device/cuda_module.h"
#include "trainer/parallel/device/device_share.h"
#include "trainer/parallel/environment/dist_env.h"
#include "trainer/runtime/process/build_commit.h"
#include "trainer/runtime/process/cpu_flags.h"
#include "trainer/runtime/process/host_name.h"

namespace ddp::train {
namespace {

constexpr int64_t kKiB = 1024;
constexpr int64_t kBytesPerMiB = 1024 * kKiB;

// Collects what is printed and what is wrong; only rank 0 prints.
class Report {
 public:
  /// `quick`: nothing is printed but what is wrong, as errors.
  Report(bool main_rank, bool json, bool quick)
      : main_rank_(main_rank), json_(json), quick_(quick) {}

  void line(const std::string& text) const {
    if (main_rank_ && !json_ && !quick_) std::printf("%s\n", text.c_str());
  }
  /// `shown`: its title, where that is longer than the name.
  void section(const std::string& name, const std::string& shown = "") {
    line(shown.empty() ? name : shown);
    section_ = name;
  }
  void item(const std::string& name, const std::string& value) {
    facts_[section_][name] = value;
    line(fmt::format("  {:<18} {}", name, value));
  }
  /// `mend`: the fix.
  void problem(const std::string& what, const std::string& mend) {
    problems_.push_back(fmt::format("{}; {}", what, mend));
  }

  /// What only --json has.
  nlohmann::ordered_json& facts() { return facts_; }

  /// Gathers the problems of all ranks on the rank that prints; one that several have is kept once.
  void gather_problems(ProcessGroup& group) {
    std::string own;
    for (const auto& problem : problems_) own += problem + '\n';
    problems_.clear();
    for (const auto& text : group.gather_texts(own)) {
      std::istringstream lines(text);
      for (std::string line; std::getline(lines, line);) {
        if (std::find(problems_.begin(), problems_.end(), line) == problems_.end())
          problems_.push_back(line);
      }
    }
  }

  int finish() {
    const int code = conclude();
    finish_stdout();
    return code;
  }

 private:
  int conclude() {
    if (json_) return print_json();
    if (quick_) return print_errors();
    if (problems_.empty()) {
      line("All checks passed.");
      return launch::kExitDone;
    }
    line(fmt::format("{} found:", counted(std::ssize(problems_), "problem")));
    for (const auto& problem : problems_) line("  - " + problem);
    return launch::kExitFailed;
  }

  int print_errors() const {
    for (const auto& problem : problems_) {
      if (main_rank_) std::fprintf(stderr, "error: %s\n", problem.c_str());
    }
    return problems_.empty() ? launch::kExitDone : launch::kExitFailed;
  }

  int print_json() {
    facts_["problems"] = problems_;
    if (main_rank_) print(json_output(facts_, 2));
    return problems_.empty() ? launch::kExitDone : launch::kExitFailed;
  }

  bool main_rank_;
  bool json_;
  bool quick_;
  std::string section_;
  nlohmann::ordered_json facts_ = nlohmann::ordered_json::object();
  std::vector<std::string> problems_;
};

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown CPU";
}

std::string vector_extensions() {
  const std::string flags = cpu_flags();
  std::string found;
  for (const char* flag : {"avx2", "fma", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16",
                           "amx_fp16", "amx_int8", "asimd", "asimdhp", "sve", "sve2", "bf16"}) {
    if (has_flag(flags, flag)) found += std::string(flag) + " ";
  }
  return found.empty() ? "no vector extensions listed" : found;
}

void report_versions(Report& report) {
  report.section("Versions");
  const std::string commit = kBuildCommit;
  report.item("trainer", commit.empty() ? DDP_VERSION : DDP_VERSION ", commit " + commit);
  report.item("LibTorch", TORCH_VERSION);
  report.item("compiler", fmt::format("g++ {}", __VERSION__));
  CudaModule* module = loaded_cuda_module();
  report.item("CUDA module", module != nullptr ? module->versions() : "not loaded");
}

void report_devices(Report& report, const DistEnv& env, const DevicePlan& plan) {
  const long cpus = ::sysconf(_SC_NPROCESSORS_ONLN);
  report.section("Devices");
  report.item("CPU", fmt::format("{}, {} CPUs, torch kernels for {}", cpu_model(), cpus,
                                 at::get_cpu_capability()));
  report.item("CPU features", vector_extensions());
  report.item("threads per rank", std::to_string(torch::get_num_threads()));
  if (CudaModule* cuda = loaded_cuda_module()) {
    for (int i = 0; i < cuda->device_count(); ++i)
      report.item(fmt::format("GPU {}", i), cuda->describe(i));
  } else {
    report.item("GPU", nvidia_device_visible() ? "found, but not usable" : "none visible");
  }
  // With more ranks than CPUs each still needs a thread: they take turns.
  const long wanted = static_cast<long>(torch::get_num_threads()) * env.local_world_size;
  const bool avoidable = torch::get_num_threads() > 1 && env.local_world_size > 1;
  if (!plan.device.is_cuda() && wanted > cpus && avoidable) {
    report.problem(
        fmt::format("{} ranks x {} threads share {} CPUs", env.local_world_size,
                    torch::get_num_threads(), cpus),
        fmt::format("set OMP_NUM_THREADS={}", std::max(1L, cpus / env.local_world_size)));
  }
}

void report_gpu_access(Report& report) {
  std::string why_not;
  if (!nvidia_device_visible()) return;
  CudaModule* module = load_cuda_module(&why_not);
  if (module == nullptr) {
    report.problem(fmt::format("{}: there is a GPU, but {}", host_name(), why_not),
                   "run ./scripts/setup.sh --gpu and rebuild");
  } else if (module->device_count() == 0) {
    report.problem(fmt::format("{}: there is a GPU, but {}", host_name(), module->why_no_device()),
                   "check the driver with nvidia-smi; it must support CUDA 13");
  }
}

// [heads, T, T] x [heads, T, D] written out, in double precision.
torch::Tensor plain_attention(const torch::Tensor& q, const torch::Tensor& k,
                              const torch::Tensor& v) {
  const auto scores = q.matmul(k.transpose(-2, -1)) / std::sqrt(static_cast<double>(q.size(-1)));
  const auto future = torch::ones({q.size(-2), q.size(-2)}, torch::kBool).triu(1);
  return scores.masked_fill(future, -INFINITY).softmax(-1).matmul(v);
}

// Worst error of the device's kernels against the CPU's in double precision, relative to the
// largest value.
double kernel_error(const torch::Tensor& found, const torch::Tensor& expected) {
  const auto difference = found.to(torch::kCPU, torch::kFloat64) - expected;
  return (difference.abs().max() / expected.abs().max()).item<double>();
}

void report_kernels(Report& report, torch::Device device) {
  report.section("Kernels", fmt::format("Kernels ({})", device.str()));
  const torch::NoGradGuard no_grad;
  std::vector<std::pair<torch::ScalarType, double>> checks = {{torch::kFloat32, 1e-3}};
  if (device.is_cuda()) checks.emplace_back(torch::kBFloat16, 3e-2);
  for (const auto& [type, bound] : checks) {
    std::vector<torch::Tensor> on_cpu;
    std::vector<torch::Tensor> on_device;
    for (int i = 0; i < 3; ++i) {
      const auto values = torch::randn({1, 4, 64, 32}, torch::kFloat64).to(type);
      on_cpu.push_back(values.to(torch::kFloat64));
      on_device.push_back(values.to(device));
    }
    const std::vector<std::pair<std::string, double>> errors = {
        {"matmul", kernel_error(on_device[0].matmul(on_device[1].transpose(-2, -1)),
                                on_cpu[0].matmul(on_cpu[1].transpose(-2, -1)))},
        {"attention", kernel_error(at::scaled_dot_product_attention(on_device[0], on_device[1],
                                                                    on_device[2], {}, 0.0, true),
                                   plain_attention(on_cpu[0], on_cpu[1], on_cpu[2]))}};
    for (const auto& [name, error] : errors) {
      const bool correct = error <= bound;
      report.item(fmt::format("{} {}", name, c10::toString(type)),
                  fmt::format("{} (error {:.1e})", correct ? "correct" : "WRONG", error));
      if (!correct) {
        report.problem(fmt::format("{} in {} on {} of {} is off by {:.1e}", name,
                                   c10::toString(type), device.str(), host_name(), error),
                       "check the driver and that this LibTorch supports the device");
      }
    }
  }
}

void report_collectives(Report& report, ProcessGroup& group, const DevicePlan& plan,
                        const std::vector<int64_t>& sizes) {
  report.line(fmt::format("Collectives ({}, {}, {})", group.backend_text(plan),
                          counted(group.size(), "rank"), plan.device.str()));
  auto& facts = report.facts()["Collectives"];
  facts = {{"backend", plan.backend_name()},
           {"shared_memory", group.shares_memory()},
           {"ranks", group.size()},
           {"device", plan.device.str()}};
  report.line(fmt::format("  {:<12} {:>10} {:>12} {:>10}  {}", "collective", "bytes", "median us",
                          "GB/s", "result"));
  for (const auto& r : check_collectives(group, plan.device, sizes)) {
    const double rate = r.median_us > 0 ? static_cast<double>(r.bytes) / r.median_us / 1e3 : 0.0;
    report.line(fmt::format("  {:<12} {:>10} {:>12.0f} {:>10.2f}  {}", r.name, r.bytes, r.median_us,
                            rate, r.correct ? "correct" : "WRONG"));
    facts["runs"].push_back(
        {{"name", r.name}, {"bytes", r.bytes}, {"median_us", r.median_us}, {"correct", r.correct}});
    if (!r.correct) {
      report.problem(fmt::format("{} of {} bytes gives wrong results with {}", r.name, r.bytes,
                                 plan.backend_name()),
                     "use another distributed_config.backend, and report it");
    }
  }
}

// What is written there is read back; and a GPU has memory to work with.
void report_memory(Report& report, torch::Device device) {
  constexpr int64_t kNumbers = 16 * kBytesPerMiB / 4;
  report.section("Memory", fmt::format("Memory ({})", device.str()));
  const auto written = torch::arange(kNumbers, torch::kInt32);
  const bool kept = written.to(device).to(torch::kCPU).equal(written);
  report.item("16 MiB", kept ? "kept" : "CHANGED");
  if (!kept) {
    report.problem(fmt::format("{} of {} returns other numbers than were written to it",
                               device.str(), host_name()),
                   "take it out of service");
  }
  if (!device.is_cuda()) return;
  CudaModule* cuda = loaded_cuda_module();
  const auto mib = [](int64_t bytes) { return bytes / kBytesPerMiB; };
  const int64_t total = cuda->total_memory_bytes(device.index());
  const int64_t free = cuda->available_memory_bytes(device.index());
  report.item("free", fmt::format("{} of {} MiB", mib(free), mib(total)));
  if (free < total / 10) {
    report.problem(fmt::format("{} of {} has {} of {} MiB free", device.str(), host_name(),
                               mib(free), mib(total)),
                   "end the process that holds it (nvidia-smi shows it)");
  }
}

// Last: the checks above need what they need.
void report_share(Report& report, const DistributedConfig& config, const DevicePlan& plan) {
  const bool asked = config.ranks_per_device || config.memory_limit_mb;
  if (!asked) return;
  hold_to_share(config, plan);
  report.section("Virtual devices");
  report.item("share of a rank", share_text(config, plan));
  if (memory_limit_bytes(config, plan.device)) {
    report.item("enforced by", plan.device.is_cuda() ? "torch's allocator on the GPU"
                                                     : "the kernel (RLIMIT_DATA), tried");
  }
}

}  // namespace

int run_doctor(const TrainerArgs& args) {
  DistEnv env = DistEnv::from_environment();
  Report report(env.is_main(), args.doctor_json, args.doctor_quick);
  if (env.local_rank == 0) report_gpu_access(report);
  const DistributedConfig& config = args.doctor_group;
  const DevicePlan plan = plan_device(DeviceChoice::kAuto, config, env);
  env.launched = true;  // alone: a group of one
  ProcessGroup group(env, config, plan);
  report_versions(report);
  report_devices(report, env, plan);
  report_kernels(report, plan.device);
  report_memory(report, plan.device);
  report_collectives(report, group, plan,
                     args.doctor_quick
                         ? std::vector<int64_t>{256 * kKiB}
                         : std::vector<int64_t>{4 * kKiB, 256 * kKiB, 16 * kBytesPerMiB});
  report.gather_problems(group);
  report_share(report, config, plan);
  return report.finish();
}

}  // namespace ddp::train
