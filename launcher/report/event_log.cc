#include "launcher/report/event_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "launcher/base/errors.h"
#include "launcher/base/messages.h"
#include "launcher/base/system/descriptors.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

using nlohmann::json;

long long unix_milliseconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

std::string to_text(const json& object) {
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

json event(const char* state, const char* source, const EventLog::Job& job,
           const WorkerGroup& group, Clock::duration since_start) {
  json metadata{{"run_id", job.run_id},
                {"global_rank", nullptr},
                {"group_rank", group.rendezvous.group_rank},
                {"worker_id", nullptr},
                {"role", job.role},
                {"hostname", job.host},
                {"state", state},
                {"total_run_time", std::chrono::duration<double>(since_start).count()},
                {"rdzv_backend", job.rendezvous},
                {"raw_error", nullptr},
                {"agent_restarts", group.restart_count}};
  return {{"name", fmt::format("torchelastic.worker.status.{}", state)},
          {"source", source},
          {"timestamp", unix_milliseconds()},
          {"metadata", std::move(metadata)}};
}

json details(const EventLog::Job& job, const WorkerGroup& group) {
  return {{"group_world_size", group.rendezvous.group_world_size},
          {"entry_point", job.entry_point}};
}

}  // namespace

EventLog::EventLog(Job job, Sink sink) : job_(std::move(job)), sink_(std::move(sink)) {}

void EventLog::group(const char* state, const WorkerGroup& group,
                     Clock::duration since_start) const {
  if (!sink_) return;
  json line = event(state, "AGENT", job_, group, since_start);
  line["metadata"]["metadata"] = to_text(details(job_, group));
  sink_(to_text(line) + "\n");
}

void EventLog::worker(const char* state, const WorkerGroup& group, const Worker& worker,
                      Clock::duration since_start, const std::string& text) const {
  if (!sink_) return;
  json more = details(job_, group);
  more["local_rank"] = worker.local_rank;
  const int of_role = group.rendezvous.role_world_size;
  more["role_rank"] = group.rendezvous.first_role_rank + worker.local_rank;
  more["role_world_size"] = of_role > 0 ? of_role : static_cast<int>(group.workers.size());
  // Python's convention: minus the signal.
  more["exit_code"] = worker.exit.signal != 0 ? -worker.exit.signal : worker.exit.code;
  more["worker_pid"] = worker.pid;
  json line = event(state, "WORKER", job_, group, since_start);
  json& metadata = line["metadata"];
  metadata["global_rank"] = worker.rank;
  metadata["worker_id"] = std::to_string(worker.pid);
  if (!text.empty()) metadata["raw_error"] = text;
  metadata["metadata"] = to_text(more);
  sink_(to_text(line) + "\n");
}

void EventLog::straggler(const WorkerGroup& group, const Straggler& straggler,
                         Clock::duration since_start) const {
  if (!sink_) return;
  json more = details(job_, group);
  more["node"] = straggler.node;
  more["host"] = straggler.host;
  more["phase"] = straggler.phase;
  more["seconds"] = straggler.seconds;
  more["others_seconds"] = straggler.others;
  json line = event("STRAGGLER", "AGENT", job_, group, since_start);
  line["metadata"]["global_rank"] = straggler.rank;
  line["metadata"]["metadata"] = to_text(more);
  sink_(to_text(line) + "\n");
}

std::function<int(std::string_view)> append_to(const std::string& path) {
  // Without O_NONBLOCK, opening a named pipe would block.
  const int how = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK;
  const auto file = std::make_shared<Descriptor>(::open(path.c_str(), how, 0644));
  struct stat status {};
  if (file->get() < 0 || ::fstat(file->get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    const std::string why = file->get() < 0 ? error_text(errno) : "not a regular file";
    usage_error(fmt::format("--events={}: {}; choose a writable file", path, why));
  }
  return [file](std::string_view lines) { return write_fully(file->get(), lines); };
}

}  // namespace ddp::launch
