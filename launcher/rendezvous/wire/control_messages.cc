#include "launcher/rendezvous/wire/control_messages.h"

#include <array>
#include <climits>
#include <stdexcept>

#include "launcher/rendezvous/wire/control_fields.h"

namespace ddp::launch {
namespace {

constexpr std::size_t kLongestOfOthers = 256;
constexpr std::size_t kLongestProgress = 300;
constexpr std::size_t kMostAgreed = 16;
constexpr int kDeepest = 8;
constexpr int kMostNodes = 100'000;
constexpr int kMostRanks = 10'000'000;
constexpr int kMostPort = 65535;
constexpr long long kLastEpoch = LLONG_MAX / 2;

// In the order of ControlMessage.
constexpr std::array kTypes{"hello", "join",    "failed",  "ended",   "leave", "accepted",
                            "alive", "status",  "welcome", "refused", "note",  "round",
                            "go",    "standby", "stop",    "verdict"};
static_assert(kTypes.size() == std::variant_size_v<ControlMessage>);

}  // namespace

// Found by their arguments, from Fields.

static void fields(Fields& io, ExitStatus& exit) {
  io.number("code", exit.code, 0, 255);
  io.number("signal", exit.signal, 0, 64);
}

static void fields(Fields& io, ProcessFailure& failure) {
  io.number("local_rank", failure.local_rank, ProcessFailure::kNoRank, kMostRanks);
  io.number("rank", failure.rank, ProcessFailure::kNoRank, kMostRanks);
  io.number("pid", failure.pid, 0, INT_MAX);
  io.part("exit", failure.exit);
  io.prose("stderr", failure.last_stderr);
  io.prose("cause", failure.cause);
  io.prose("hang", failure.hang);
  io.prose("heartbeat", failure.heartbeat);
  io.prose("host", failure.host);
  io.prose("message", failure.message);
  io.real("time", failure.time);
  io.time("lived_ms", failure.lived);
}

// Reports show what the first one has written; if all ranks fail, the host gets this from each
// node.
static void list_failures(Fields& io, std::vector<ProcessFailure>& failures) {
  for (std::size_t i = 1; i < failures.size(); ++i) {
    for (std::string* text : {&failures[i].last_stderr, &failures[i].message})
      *text = shortened(*text, kLongestOfOthers);
  }
  io.list("failures", failures, kMostFailures);
}

static void fields(Fields& io, RestartTally& tally) {
  io.number("rank", tally.last.rank, ProcessFailure::kNoRank, kMostRanks);
  io.part("exit", tally.last.exit);
  io.time("lived_ms", tally.last.lived);
  io.prose("progress", tally.last.progress, kLongestProgress);
  io.number("unhealthy", tally.unhealthy, 0, INT_MAX - 1);
  io.number("quick", tally.quick, 0, INT_MAX - 1);
  io.number("same", tally.same, 0, INT_MAX - 1);
}

static void fields(Fields& io, PhasePace& pace) {
  io.text("phase", pace.phase);
  io.number("slowest_rank", pace.slowest_rank, 0, kMostRanks);
  io.pair("slowest", pace.slowest.p95, pace.slowest.mean);
  io.pair("others", pace.others.p95, pace.others.mean);
  io.number("other_ranks", pace.other_ranks, 0, kMostRanks);
}

static void fields(Fields& io, NodePace& pace) {
  io.number("node", pace.node, 0, kMostNodes);
  io.text("host", pace.host);
  io.real("step_seconds", pace.step_seconds);
  io.list("phases", pace.phases, kMostPhases);
}

static void fields(Fields& io, Straggler& straggler) {
  io.number("rank", straggler.rank, 0, kMostRanks);
  io.number("node", straggler.node, 0, kMostNodes);
  io.text("host", straggler.host);
  io.text("phase", straggler.phase);
  io.real("seconds", straggler.seconds);
  io.real("others", straggler.others);
}

static void fields(Fields& io, PartlyDone& part) {
  io.text("nodes", part.nodes);
  io.flag("first", part.first);
}

static void fields(Fields& io, NodeStatus& status) {
  io.number("node", status.node, 0, kMostNodes);
  io.prose("table", status.table, kLongestTable);
}

static void fields(Fields& io, Hello& m) {
  io.text("id", m.id);
  io.text("run_id", m.run_id);
  io.number("min_nodes", m.min_nodes, 1, kMostNodes);
  io.number("max_nodes", m.max_nodes, m.min_nodes, kMostNodes);
  io.number("node_rank", m.node_rank, -1, kMostNodes);
  io.text("host", m.host);
  io.text("address", m.address);
  io.number("pid", m.pid, 0, INT_MAX);
  io.number("local_world_size", m.local_world_size, 1, 4096);
  io.text("role", m.role);
  io.number("max_restarts", m.max_restarts, 0, INT_MAX);
  io.texts("agreed", m.agreed, kMostAgreed);
  io.text("sort_key", m.sort_key);
  io.number("port", m.port, 0, kMostPort);
  io.text("member", m.member);
  io.number("epoch", m.epoch, -1, kLastEpoch);
  io.flag("returned", m.returned);
  io.flag("alone", m.alone, /*optional=*/true);
  io.text("session", m.session);
  io.number("received", m.received, 0, kLastEpoch);
}

static void fields(Fields& io, Join& m) { io.number("port", m.port, 0, kMostPort); }

static void fields(Fields& io, Failed& m) { io.part("failure", m.failure); }

static void fields(Fields& io, Ended& m) {
  list_failures(io, m.failures);
  io.flag("stopped", m.stopped);
  io.flag("preempted", m.preempted);
}

static void fields(Fields& io, Leave& m) {
  io.number("signal", m.signal, 0, 64);
  io.prose("why", m.why);
}

static void fields(Fields& io, Accepted& m) { io.number("epoch", m.epoch, 0, kLastEpoch); }

static void fields(Fields& io, Alive& m) {
  io.number("received", m.received, 0, kLastEpoch);
  io.part("pace", m.pace);
  io.part("straggler", m.straggler);
  io.part("partly_done", m.partly_done);
  io.flag("stacks", m.stacks, /*optional=*/true);
  io.flag("asks_status", m.asks_status, /*optional=*/true);
  io.part("status", m.status);
}

static void fields(Fields& io, Status& m) {
  io.text("id", m.id);
  io.text("run_id", m.run_id);
  io.number("epoch", m.epoch, -1, kLastEpoch);
  io.flag("hosts", m.hosts);
  io.text("address", m.address);
  io.number("port", m.port, 0, kMostPort);
}

static void fields(Fields& io, Welcome& m) {
  io.number("node", m.node, 0, INT_MAX);
  io.time("heartbeat_ms", m.heartbeat);
  io.time("patience_ms", m.patience);
  io.text("session", m.session);
  io.flag("resumed", m.resumed);
  io.number("received", m.received, 0, kLastEpoch);
}

static void fields(Fields& io, Refused& m) { io.prose("why", m.why); }

static void fields(Fields& io, Note& m) { io.prose("text", m.text); }

static void fields(Fields& io, Successor& one) {
  io.number("node", one.node, 0, INT_MAX);
  io.text("address", one.address);
  io.number("port", one.port, 0, kMostPort);
  io.text("member", one.member);
}

static void fields(Fields& io, Round& m) {
  RendezvousInfo& info = m.info;
  io.number("epoch", info.epoch, 0, kLastEpoch);
  io.prose("job", info.job);
  io.number("restart_count", info.restart_count, 0, INT_MAX);
  io.number("group_world_size", info.group_world_size, 1, kMostNodes);
  io.number("group_rank", info.group_rank, 0, info.group_world_size - 1);
  io.number("world_size", info.world_size, 1, kMostRanks);
  io.number("first_rank", info.first_rank, 0, info.world_size - 1);
  io.number("role_world_size", info.role_world_size, 1, kMostRanks);
  io.number("first_role_rank", info.first_role_rank, 0, info.role_world_size - 1);
  io.text("master_addr", info.master_addr);
  io.number("master_port", info.master_port, 1, kMostPort);
  io.list("successors", m.successors, kMaxSuccessors);
  io.part("tally", m.tally);
  io.number("changes", m.changes, 0, INT_MAX - 1);
}

static void fields(Fields& io, Standby& m) { fields(io, m.round); }

static void fields(Fields& io, Go& m) { io.number("epoch", m.epoch, 0, kLastEpoch); }

static void fields(Fields& io, Stop& m) {
  io.flag("leaving", m.leaving);
  io.prose("text", m.text);
}

static void fields(Fields& io, Verdict& m) {
  int outcome = static_cast<int>(m.outcome);
  io.flag("over", m.over);
  io.number("outcome", outcome, 0, static_cast<int>(Outcome::kGuardianGone));
  io.flag("restart", m.verdict.restart);
  io.number("number", m.verdict.number, 0, INT_MAX);
  io.time("delay_ms", m.verdict.delay);
  io.prose("gave_up", m.verdict.gave_up);
  io.prose("text", m.text);
  list_failures(io, m.failures);
  m.outcome = static_cast<Outcome>(outcome);
}

namespace {

template <std::size_t I = 0>
std::optional<ControlMessage> message_of(const ControlJson& object, const std::string& type) {
  if constexpr (I < kTypes.size()) {
    if (type != kTypes[I]) return message_of<I + 1>(object, type);
    std::variant_alternative_t<I, ControlMessage> message;
    Fields reader = Fields::reader(object);
    fields(reader, message);
    return message;
  } else {
    return std::nullopt;
  }
}

}  // namespace

std::string to_json_text(const ControlMessage& message) {
  Fields writer = Fields::writer();
  std::string type = kTypes[message.index()];
  writer.text("type", type);
  std::visit([&](auto copy) { fields(writer, copy); }, message);
  return writer.written().dump(-1, ' ', false, ControlJson::error_handler_t::replace);
}

std::optional<ControlMessage> parse_control_message(std::string_view text) noexcept {
  try {
    const ControlJson object = parse_json(text, kDeepest);
    std::string type;
    Fields::reader(object).text("type", type);
    return message_of(object, type);
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

}  // namespace ddp::launch
