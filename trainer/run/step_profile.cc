#include "trainer/run/step_profile.h"

#include <fmt/format.h>
#include <torch/csrc/autograd/profiler.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <set>

#include "trainer/parallel/device/cuda_module.h"
#include "trainer/parallel/device/device_wait.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

namespace profiler = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

std::set<ActivityType> activities_on(c10::Device device) {
  std::set<ActivityType> activities = {ActivityType::CPU};
  if (device.is_cuda()) activities.insert(ActivityType::CUDA);
  return activities;
}

/// "step 7" or "steps 7 to 9"
std::string steps_text(int64_t first, int64_t last) {
  return first == last ? fmt::format("step {}", first) : fmt::format("steps {} to {}", first, last);
}

std::string communication_text(const SyncTimes& times, int64_t step) {
  const double all = times.communication_ms;
  return fmt::format(
      "Communication, step {}: gradients in flight for {:.1f} ms, {:.1f} ms ({:.0f} %) of it "
      "alongside the backward pass of {:.1f} ms; {:.1f} ms exposed",
      step, all, times.overlap_ms, all > 0.0 ? 100.0 * times.overlap_ms / all : 0.0,
      times.backward_ms, std::max(0.0, all - times.overlap_ms));
}

}  // namespace

StepProfile::StepProfile(const ProfileConfig& config, const std::string& run_dir, int rank,
                         c10::Device device, int64_t last_step)
    : run_dir_(run_dir),
      rank_(rank),
      device_(device),
      first_(config.start.value_or(0)),
      last_(first_ + config.steps - 1),
      done_(!config.start) {
  if (done_) return;
  if (first_ > last_step) {
    throw UserError(
        fmt::format("profile.start: {} is beyond the end of the run, step {}; give a step from 1 "
                    "to {}",
                    first_, last_step, last_step));
  }
  summary_ = fmt::format("Profile: none: {} not trained since this start",
                         steps_text(first_, last_) + (first_ == last_ ? " was" : " were"));
}

StepProfile::~StepProfile() {
  step_.reset();
  try {
    if (recording_) profiler::disableProfiler();
  } catch (const std::exception&) {  // the run has ended with an error of its own
  }
}

std::string StepProfile::file(const std::string& run_dir, int rank) {
  return fmt::format("{}/profile_rank_{}.json", run_dir, rank);
}

bool StepProfile::begins_with(int64_t step) const {
  return !done_ && !recording_ && step >= first_ && step <= last_;
}

void StepProfile::start(int64_t step) {
  ::setenv("KINETO_LOG_LEVEL", "6", /*overwrite=*/0);  // else it writes to standard error
  const profiler::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO,
                                        /*report_input_shapes=*/true);
  const auto activities = activities_on(device_);
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
  recording_ = true;
  first_recorded_ = step;
}

void StepProfile::begin_step(int64_t step) {
  if (!recording_) return;
  step_.emplace(at::RecordScope::USER_SCOPE);
  // The name by which readers of such traces know a step.
  if (step_->isActive()) step_->before(fmt::format("ProfilerStep#{}", step));
  last_recorded_ = step;
}

// A failed write to the disk must not end a training.
void StepProfile::finish(const std::optional<SyncTimes>& times) {
  if (!recording_) return;
  recording_ = false;
  done_ = true;
  if (times) communication_ = communication_text(*times, last_recorded_);
  wait_for_device(device_);
  if (device_.is_cuda()) loaded_cuda_module()->synchronize();  // the other queues
  const auto trace =
      profiler::disableProfiler();  // whatever follows: the process must not end with it
  const std::string path = file(run_dir_, rank_);
  try {
    std::filesystem::create_directories(run_dir_);  // of rank 0, perhaps on another node
    std::filesystem::remove(path);  // an earlier run's; Kineto does not say when it cannot write
    trace->save(path);
    if (std::filesystem::file_size(path) == 0) throw RunError("the file is empty");
    summary_ = fmt::format(
        "Profile: {}, of {}, and one like it for each further rank; open it in "
        "https://ui.perfetto.dev or chrome://tracing",
        path, steps_text(first_recorded_, last_recorded_));
  } catch (const std::exception& error) {
    summary_ = fmt::format("Profile: not written to {}: {}", path, error.what());
  }
}

}  // namespace ddp::train
