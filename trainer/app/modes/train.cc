// trainer: a training; also as a process that a launcher starts before it is needed, by the
// contract of DDP_SPARE_FD in launcher/worker_contract.h.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>

#include "launcher/worker_contract.h"
#include "trainer/app/load_run.h"
#include "trainer/app/modes.h"
#include "trainer/app/train_job.h"
#include "trainer/config/cpu_amp.h"
#include "trainer/config/keys/trainer_keys.h"
#include "trainer/health/heartbeat_file.h"
#include "trainer/health/run_monitor.h"
#include "trainer/hydra/compose/sweep_plan.h"
#include "trainer/model/causal_architecture.h"
#include "trainer/optim/numerics.h"
#include "trainer/parallel/device/cuda_module.h"
#include "trainer/parallel/device/device_plan.h"
#include "trainer/parallel/environment/dist_env.h"
#include "trainer/run/trainer.h"
#include "trainer/runtime/process/cpu_flags.h"
#include "trainer/runtime/process/kept_memory.h"
#include "trainer/runtime/process/start_time.h"
#include "trainer/runtime/process/stop_signal.h"
#include "trainer/task/task.h"

namespace ddp::train {
namespace {

constexpr std::size_t kMostKept = std::size_t{256} << 20U;  // memory that a spare reserves
constexpr int kNoRank = -1;                                 // no planned fault is for this process

bool computes_on_cpu(const Config& config) {
  if (config.trainer.device == DeviceChoice::kCpu) return true;
  return config.trainer.device == DeviceChoice::kAuto &&
         config.distributed.backend != Backend::kNccl && !nvidia_device_visible();
}

/// The run's own layers, but few and narrow ones.
Config small_run(Config config) {
  constexpr int64_t kLayers = 2, kHeads = 2, kWidth = 32, kSamples = 2;
  if (trains_causal_lm(config.task)) causal_architecture(config).shrink(config);
  config.bert.n_layer = std::min(config.bert.n_layer, kLayers);
  config.bert.n_head = kHeads;
  config.bert.n_embd = config.bert.intermediate = kWidth;
  config.bert.init_from.clear();
  config.prompt_tuning.init_from.clear();
  config.lora.init_from.clear();
  config.trainer.batch_size = std::min(config.trainer.batch_size, kSamples);
  config.trainer.grad_accumulation_steps = 1;
  config.trainer.global_batch_size.reset();
  config.trainer.freeze.clear();  // the layers that patterns name may be missing
  config.optimizer.param_groups.clear();
  return config;
}

/// What the model of the run will need, without what only some ranks need.
std::size_t bytes_of_run(const TaskCost& task, const Config& config) {
  int64_t bytes = 0;
  for (const auto& item : task.memory_items(config, {})) {
    if (item.kind == MemoryKind::kDevice) bytes += item.bytes;
  }
  return static_cast<std::size_t>(std::max<int64_t>(0, bytes));
}

/// Returns the bytes that the run itself will need.
std::size_t train_one_step(const Config& run) {
  const Config config = small_run(run);
  const DevicePlan plan;
  apply_numerics(config.trainer, plan.device);
  ProcessGroup alone;
  const auto task = make_task(config, nullptr);
  Mesh mesh(alone);
  Trainer trainer(config, plan, mesh, *task, std::nullopt, nullptr);
  RunMonitor monitor(config, kNoRank, alone.size(), /*on_gpu=*/false);
  const auto loader = trainer.make_loader();
  trainer.train_step(*loader, monitor, [] {});
  return bytes_of_run(*task, run);
}

using Streams = std::array<int, 3>;

ssize_t receive(int socket, std::string& text, Streams& streams) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(Streams))> control{};
  iovec part{text.data(), text.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t got = 0;
  do {
    got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (got <= 0 || header == nullptr || header->cmsg_len != CMSG_LEN(sizeof streams)) return 0;
  std::memcpy(streams.data(), CMSG_DATA(header), sizeof streams);
  return got;
}

void take_environment(const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::string setting = text.c_str() + at;
    at += setting.size() + 1;
    const auto equals = setting.find('=');
    if (equals != std::string::npos)
      ::setenv(setting.substr(0, equals).c_str(), setting.c_str() + equals + 1, 1);
  }
}

void take_streams(const Streams& streams) {
  for (int target = 0; target < 3; ++target) {
    const int source = streams[static_cast<std::size_t>(target)];
    ::dup2(source, target);
    ::close(source);
  }
}

/// Reads the configuration and the data, and runs one step of a small model on the CPU, so that
/// libraries, threads and kernels are loaded and files are in the page cache; then reserves memory
/// for the run's own model, at most kMostKept. If the run may use a GPU it does neither, and
/// touches no GPU. Has no other effect; errors are left for the worker to report.
void warm_up(const TrainerArgs& args) noexcept {
  try {
    Config config = load_run(args.config, args.overrides).config;
    if (!computes_on_cpu(config)) return;
    settle_amp(config.trainer, cpu_computes_in(config.trainer.amp_dtype, cpu_flags()));
    keep_memory(std::min(kMostKept, train_one_step(config)));
  } catch (...) {  // the worker meets it again, and says it
  }
}

/// Reports that this process is warm and waits until it is needed; then it has a worker's
/// environment and standard streams, and counts as started then. Returns false if it is not needed.
bool become_worker() {
  const int socket = std::atoi(std::getenv(launch::kSpareFd));
  ::unsetenv(launch::kSpareFd);
  std::string text(launch::kLongestHandover, '\0');
  Streams streams{};
  ssize_t got = 0;
  if (::send(socket, "ready", 5, MSG_NOSIGNAL) > 0) got = receive(socket, text, streams);
  ::close(socket);
  if (got <= 0) return false;
  text.resize(static_cast<std::size_t>(got));
  take_environment(text);
  take_streams(streams);
  count_as_started_now();
  return true;
}

}  // namespace

int run_train(const TrainerArgs& args) {
  ::signal(SIGPIPE, SIG_IGN);     // a console that went away must not end the training
  ::signal(SIGXFSZ, SIG_IGN);     // nor a snapshot that is larger than a limit on file sizes
  ::signal(SIGUSR2, [](int) {});  // asked how it goes before there is anything to say
  end_when_preempted();
  if (std::getenv(launch::kSpareFd) != nullptr) {  // a warm spare, without a rank yet
    warm_up(args);
    if (!become_worker()) return launch::kExitDone;
    beat_at_start(promise_of_start(nvidia_device_visible()));
  }
  if (args.multirun || asks_for_sweep(args.config, args.overrides, trainer_keys()))
    return run_multirun(args);
  const DistEnv env = DistEnv::from_environment();
  const FitResult result =
      train_job(load_run(args.config, args.overrides), env, OnFailure::kEndProcess);
  return result.stop_signal == 0 ? launch::kExitDone : launch::kExitPreempted;
}

}  // namespace ddp::train
