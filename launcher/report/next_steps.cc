#include "launcher/report/next_steps.h"

#include <fmt/format.h>

#include "launcher/base/text.h"

namespace ddp::launch {
namespace {

std::string where_to_look(const ProcessFailure& failure, const Traces& traces) {
  if (traces.error) return look_at(*traces.error);
  if (failure.exit.signal != 0) return "its last lines show what it was doing when it was killed";
  const bool silent = trimmed(traces.words).empty();
  if (failure.exit.code == 0) {  // not recorded
    if (!silent) return "its last lines are above";
    return traces.logs.empty() ? "the workers' output was not kept" : "the workers wrote nothing";
  }
  return fmt::format("exit code {0} is the program's own, {1}: look for sys.exit({0}) or exit({0})",
                     failure.exit.code, silent ? "with no output" : "see its last lines");
}

std::string where_output_is(const Traces& traces) {
  if (!traces.elsewhere.empty())
    return fmt::format("its files are on {}: run ddp-run --explain there", traces.elsewhere);
  if (!traces.output.empty()) return "full output: " + traces.output;
  const bool silent = trimmed(traces.words).empty();
  if (silent && !traces.logs.empty()) return "its log files are empty: " + traces.logs;
  return "to keep every rank's output, rerun with --log-dir=logs --tee=3";
}

std::string about_the_rest(const ProcessFailure& failure, const Traces& traces) {
  const std::string& host = failure.host;
  return fmt::format(
      "no worker failed on its own; check dmesg and the free memory, disk and network of {}",
      traces.elsewhere.empty() || host.empty() ? "this machine" : host);
}

}  // namespace

std::string look_at(const PythonError& error) {
  return fmt::format("look at {}, which led to {}", error.place, error.what);
}

std::vector<std::string> next_steps(const ProcessFailure& failure, const Traces& traces) {
  if (!failure.is_worker()) return {about_the_rest(failure, traces)};
  std::vector<std::string> steps{where_to_look(failure, traces), where_output_is(traces)};
  if (traces.world_size > 1) {
    steps.push_back(
        fmt::format("try {}--nproc_per_node=1: if that fails too, debug it there; if not, look for "
                    "what only some ranks do",
                    traces.several_nodes ? "--standalone " : ""));
  }
  return steps;
}

}  // namespace ddp::launch
