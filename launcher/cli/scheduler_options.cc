#include "launcher/cli/node_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "launcher/base/errors.h"
#include "launcher/cli/option_parsers.h"
#include "launcher/cli/option_values.h"
#include "launcher/cluster/scheduler.h"

namespace ddp::launch {
namespace {

Scheduler asked_scheduler(const OptionValues& values) {
  const std::vector<std::string> names{"none", "auto", "slurm", "mpi", "flux", "pbs", "lsf", "sge"};
  const auto name = std::find(names.begin(), names.end(), values.one_of("scheduler", names));
  return static_cast<Scheduler>(name - names.begin());  // in the order of the enumeration
}

// Collects what is taken, and the line that tells the user.
class SchedulerFiller {
 public:
  SchedulerFiller(RawOptions& raw, const OptionValues& given) : raw_(raw), given_(given) {}

  void take(const char* option, const SchedulerFact& fact) {
    if (fact.value.empty() || given_.given(option)) return;
    raw_.defaults[option] = {fact.value, fact.variable};
    line_ +=
        fmt::format("{}--{}={} ({})", line_.empty() ? "" : ", ", option, fact.value, fact.variable);
  }
  const std::string& line() const { return line_; }

 private:
  RawOptions& raw_;
  const OptionValues& given_;
  std::string line_;
};

bool is_several_nodes(const RawOptions& raw) {
  return parse_nnodes(OptionValues(raw).text("nnodes")).max > 1;
}

void fill_endpoint(SchedulerFiller& filler, const SchedulerFacts& facts,
                   const OptionValues& values) {
  if (values.given("rdzv-endpoint")) return;
  if (facts.host.value.empty() && !values.given("master-addr")) {
    usage_error(fmt::format(
        "{} does not say which host is the first: give it with --rdzv-endpoint=HOST{}{}",
        facts.name, facts.host_remedy.empty() ? "" : ", or with ", facts.host_remedy));
  }
  if (values.text("rdzv-backend") != "c10d" || values.given("master-addr")) {
    filler.take("master-addr", facts.host);
    return filler.take("master-port", facts.port);
  }
  SchedulerFact endpoint = facts.host;
  if (!facts.port.value.empty()) endpoint.value += ":" + facts.port.value;
  filler.take("rdzv-endpoint", endpoint);
}

void forgotten_scheduler(RawOptions& raw, const OptionValues& values,
                         const Environment& environment) {
  const std::string remedy = remedy_for_one_node(environment);
  if (remedy.empty() || values.given("nnodes") || values.given("scheduler") ||
      values.given("hosts") || values.flag("standalone"))
    return;
  raw.hints.push_back(
      fmt::format("started on several nodes, but this job uses only its own; for one job on all of "
                  "them {} (or --nnodes=1 to silence this)",
                  remedy));
}

}  // namespace

void add_scheduler_options(RawOptions& raw, const Environment& environment) {
  const OptionValues values(raw);
  const Scheduler scheduler = asked_scheduler(values);
  if (scheduler != Scheduler::kNone && values.given("hosts"))
    usage_error("--scheduler and --hosts cannot be combined; drop one");
  const SchedulerFact hosts = batch_hosts(scheduler, environment);
  const auto facts = scheduler_facts(scheduler, environment);
  if (!facts && hosts.value.empty()) return forgotten_scheduler(raw, values, environment);
  if (values.flag("standalone")) {
    usage_error("--standalone with --scheduler, which is for several nodes: drop one");
  }
  SchedulerFiller filler(raw, values);
  if (!facts) {
    filler.take("hosts", hosts);
    return raw.hints.push_back("from the job: " + filler.line());
  }
  filler.take("nproc-per-node", facts->nproc);
  filler.take("nnodes", facts->nodes);
  filler.take("rdzv-id", facts->run_id);
  const bool several = is_several_nodes(raw);
  if (several) {
    fill_endpoint(filler, *facts, values);
    if (values.text("rdzv-backend") == "static") filler.take("node-rank", facts->node_rank);
    if (!facts->hint.empty()) raw.hints.push_back(facts->hint);
  }
  // Once for the job.
  if (filler.line().empty() || (facts->node_rank.value != "0" && !facts->node_rank.value.empty()))
    return;
  raw.hints.push_back(fmt::format("from {}: {}", facts->name, filler.line()));
}

}  // namespace ddp::launch
