// A sweep: one job for each combination of values, in turn, every rank in step with the others.

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>

#include "launcher/worker_contract.h"
#include "trainer/app/exit_report.h"
#include "trainer/app/load_run.h"
#include "trainer/app/modes.h"
#include "trainer/app/train_job.h"
#include "trainer/config/keys/key_table.h"
#include "trainer/config/keys/trainer_keys.h"
#include "trainer/hydra/compose/sweep_plan.h"
#include "trainer/hydra/interpolation/interpolation.h"
#include "trainer/parallel/collectives/announcement.h"
#include "trainer/run/run_end.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/log/line_writer.h"
#include "trainer/runtime/process/stop_signal.h"

namespace ddp::train {
namespace {

struct JobReport {
  FitResult result;
  std::string error;
};

/// What is said between the jobs; stdout of the main rank alone.
class Announcer {
 public:
  explicit Announcer(bool main_rank) : main_rank_(main_rank) {}

  void say(const std::string& text) {
    if (main_rank_) console_.write(STDOUT_FILENO, text + "\n");
  }
  void say_error(const std::string& text) {
    console_.write(STDERR_FILENO, "error: " + text + "\n");
  }
  /// Before a job writes to the same streams.
  void flush() { console_.flush(); }

 private:
  bool main_rank_;
  LineWriter console_{{{STDOUT_FILENO, "standard output"}, {STDERR_FILENO, "standard error"}}};
};

/// A mistake in a later job is reported before the first one trains.
void check_jobs(const ConfigSource& source, const SweepPlan& plan) {
  std::map<std::string, std::size_t> owners;
  for (std::size_t i = 0; i < plan.jobs.size(); ++i) {
    const RunConfig run = load_run(source, plan.jobs[i], static_cast<int64_t>(i));
    const std::string& path = run.config.trainer.snapshot_path;
    const auto [owner, is_new] = owners.emplace(path, i);
    if (is_new) continue;
    throw UserError(fmt::format(
        "trainer_config.snapshot_path: jobs {0} and {1} of the sweep share {2}: job {1} would "
        "resume from job {0}'s snapshot; use a relative path, or put ${{hydra:job.num}} in it",
        owner->second, i, path));
  }
}

JobReport run_one(const TrainerArgs& args, const SweepPlan& plan, std::size_t number,
                  const DistEnv& env, const WorkerStore& store, Announcer& announcer) {
  JobReport report;
  std::error_code ignored;
  const auto folder = std::filesystem::current_path(ignored);
  try {
    RunConfig run = load_run(args.config, plan.jobs[number], static_cast<int64_t>(number));
    if (number > 0) run.warning.clear();  // the same in every job
    report.result =
        train_job(run, env, OnFailure::kThrow, store.part(fmt::format("job_{}", number)));
  } catch (...) {
    report.error = current_exception_text();
    announcer.say_error(fmt::format("job {}: {}", number, report.error));
  }
  std::filesystem::current_path(folder, ignored);  // which hydra.job.chdir left
  return report;
}

std::string loss_text(const std::optional<double>& loss) {
  return loss ? fmt::format("{:.6f}", *loss) : "-";
}

std::string outcome(const JobReport& report) {
  if (!report.error.empty()) return "failed: " + report.error;
  if (report.result.stop_signal != 0)
    return fmt::format("stopped by signal {}", report.result.stop_signal);
  return "done";
}

void print_table(Announcer& announcer, const SweepPlan& plan,
                 const std::vector<JobReport>& reports) {
  std::size_t width = 9;
  for (const auto& job : plan.labels) width = std::max(width, job.size());
  announcer.say(fmt::format("\n{:>4}  {:<{}}  {:>10}  {:>10}  outcome", "job", "overrides", width,
                            "eval loss", "train loss"));
  for (std::size_t i = 0; i < plan.jobs.size(); ++i) {
    const bool started = i < reports.size();
    const JobReport report = started ? reports[i] : JobReport{};
    announcer.say(fmt::format("{:>4}  {:<{}}  {:>10}  {:>10}  {}", i, plan.labels[i], width,
                              loss_text(report.result.eval_loss),
                              loss_text(report.result.train_loss),
                              started ? outcome(report) : "not started"));
  }
}

/// Timeout of the group that all jobs use, in seconds.
double join_timeout(const Node& root) {
  constexpr const char* kKey = "distributed_config.timeout_s";
  Config config;
  const Node timeout = select_value(root, kKey);
  if (timeout.kind != Kind::kNull) assign_field(*find_field(kKey), timeout, config);
  return config.distributed.timeout_s;
}

}  // namespace

int run_multirun(const TrainerArgs& args) {
  const DistEnv env = DistEnv::from_environment();
  const SweepPlan plan = plan_sweep(args.config, args.overrides, trainer_keys());
  check_jobs(args.config, plan);
  if (env.is_main()) write_sweep_file(plan);
  Announcer announcer(env.is_main());
  announcer.say(fmt::format("Sweep of {} jobs in {}", plan.jobs.size(), plan.folder));
  const WorkerStore store(env, join_timeout(plan.root));
  std::vector<JobReport> reports;
  int signal = 0;
  while (reports.size() < plan.jobs.size() && signal == 0) {
    const std::size_t number = reports.size();
    announcer.say(fmt::format("\n#{} : {}", number, plan.labels[number]));
    announcer.flush();
    reports.push_back(run_one(args, plan, number, env, store, announcer));
    // A job that lost its peers is being ended by the launcher, too.
    signal = std::max(reports.back().result.stop_signal,
                      reports.back().error.empty() ? 0 : StopSignal::pending());
  }
  print_table(announcer, plan, reports);
  if (signal != 0 && reports.back().error.empty()) {
    announcer.say("Next: the same command continues with " +
                  shell_quoted("hydra.sweep.dir", plan.folder));
    return launch::kExitPreempted;
  }
  const bool failed = std::any_of(reports.begin(), reports.end(),
                                  [](const JobReport& report) { return !report.error.empty(); });
  if (!failed) return launch::kExitDone;
  // The first rank that fails ends the others, rank 0 before it has shown its table.
  announcer.flush();
  announce(store.part("table"), env.is_main(), std::chrono::seconds(10));
  return launch::kExitFailed;
}

}  // namespace ddp::train
