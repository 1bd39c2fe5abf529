// trainer eval --suite: multiple-choice questions, as lm-eval scores them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "launcher/worker_contract.h"
#include "trainer/app/modes.h"
#include "trainer/app/standard_output.h"
#include "trainer/parallel/collectives/process_group.h"
#include "trainer/parallel/device/device_plan.h"
#include "trainer/parallel/environment/dist_env.h"
#include "trainer/runtime/group_error.h"
#include "trainer/snapshot/open_model.h"
#include "trainer/snapshot/snapshot_meta.h"
#include "trainer/task/generate/choice_scores.h"

namespace ddp::train {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string table_row(const char* name, const ItemShare& share) {
  return fmt::format("{:<20} {:.4f}{}\n", name, share.mean,
                     share.stderr_of_mean ? fmt::format(" ± {:.4f}", *share.stderr_of_mean) : "");
}

std::string suite_table(const ChoiceSuite& suite, const ChoiceScores& scores) {
  return fmt::format("{:<20} {} of {}\n", "items", suite.items.size(), suite.layout) +
         table_row("acc", scores.acc) + table_row("acc_norm", scores.acc_norm);
}

std::string suite_json(const ChoiceSuite& suite, const ChoiceScores& scores,
                       const std::string& snapshot) {
  const auto error_of = [](const ItemShare& share) {
    return share.stderr_of_mean ? OrderedJson(*share.stderr_of_mean) : OrderedJson(nullptr);
  };
  const OrderedJson report = {{"snapshot", snapshot},
                              {"suite", suite.path},
                              {"layout", suite.layout},
                              {"items", suite.items.size()},
                              {"acc", scores.acc.mean},
                              {"acc_stderr", error_of(scores.acc)},
                              {"acc_norm", scores.acc_norm.mean},
                              {"acc_norm_stderr", error_of(scores.acc_norm)}};
  return json_output(report, 2);
}

}  // namespace

int run_eval_suite(const EvalArgs& options) {
  constexpr int64_t kRows = 16;  // at a time, where the user names no other number
  const ChoiceSuite suite = read_choice_suite(options.suite);
  Config config;
  config.trainer.device = options.device;
  const DistEnv env = DistEnv::from_environment();
  const DevicePlan plan = plan_device(config.trainer.device, config.distributed, env);
  ProcessGroup group(env, config.distributed, plan);
  const ModelBundle bundle = open_model(options.snapshot, plan.device, options.base);
  check_base_is_needed(bundle.config, options.snapshot, options.base);
  check_snapshot_task(task_name(bundle.config.task), TaskKind::kCausalLm, bundle.path,
                      "--suite asks a language model");
  const auto log_likelihoods =
      choice_log_likelihoods(bundle.as<CausalModel>(), *bundle.tokenizer, suite,
                             options.batch_size != 0 ? options.batch_size : kRows, group);
  for (const auto& item : log_likelihoods) {
    if (std::any_of(item.begin(), item.end(), [](double nats) { return std::isnan(nats); }))
      throw GroupError(options.snapshot +
                       ": a log-likelihood is nan: the model is useless; evaluate another one");
  }
  const ChoiceScores scores = scores_of(suite, log_likelihoods);
  if (group.is_main())
    print(options.json ? suite_json(suite, scores, options.snapshot) : suite_table(suite, scores));
  return launch::kExitDone;
}

}  // namespace ddp::train
