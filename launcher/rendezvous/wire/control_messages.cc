#include "launcher/rendezvous/wire/control_messages.h"

#include <algorithm>
#include <climits>
#include <stdexcept>

#include "launcher/rendezvous/wire/control_fields.h"

namespace ddp::launch {
namespace {

constexpr std::size_t kLongestText = 4096;
constexpr std::size_t kLongestOfOthers = 256;
constexpr std::size_t kLongestProgress = 300;
constexpr std::size_t kMostAgreed = 16;
constexpr int kDeepest = 8;

// The end is more informative than the beginning. Control characters, which a report does not show
// either, would take six bytes each in JSON.
std::string cut(const std::string& text, std::size_t longest = kLongestText) {
  std::string end = text.size() <= longest ? text : text.substr(text.size() - longest);
  const auto is_control = [](char c) {
    return static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' && c != '\r';
  };
  std::replace_if(end.begin(), end.end(), is_control, '?');
  return end;
}

template <typename List>
List first_of(const List& list, std::size_t most) {
  const auto size = static_cast<std::ptrdiff_t>(std::min(list.size(), most));
  return List(list.begin(), list.begin() + size);
}

long long in_ms(Clock::duration time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
}

constexpr int kMostNodes = 100'000;
constexpr int kMostRanks = 10'000'000;
constexpr long long kLastEpoch = LLONG_MAX / 2;

ControlJson exit_json(const ExitStatus& exit) {
  return {{"code", exit.code}, {"signal", exit.signal}};
}

ExitStatus exit_of(const ControlFields& fields) {
  return {fields.integer("code", 0, 255), fields.integer("signal", 0, 64)};
}

ControlJson failure_to_json(const ProcessFailure& failure, std::size_t longest = kLongestText) {
  return {{"local_rank", failure.local_rank},
          {"rank", failure.rank},
          {"pid", failure.pid},
          {"exit", exit_json(failure.exit)},
          {"stderr", cut(failure.last_stderr, longest)},
          {"cause", cut(failure.cause)},
          {"hang", cut(failure.hang)},
          {"heartbeat", cut(failure.heartbeat)},
          {"host", cut(failure.host)},
          {"message", cut(failure.message, longest)},
          {"time", failure.time},
          {"lived_ms", in_ms(failure.lived)}};
}

ProcessFailure failure_of_json(const ControlJson& object) {
  const ControlFields fields(object);
  ProcessFailure failure;
  failure.local_rank = fields.integer("local_rank", ProcessFailure::kNoRank, kMostRanks);
  failure.rank = fields.integer("rank", ProcessFailure::kNoRank, kMostRanks);
  failure.pid = fields.integer("pid", 0, INT_MAX);
  failure.exit = exit_of(ControlFields(fields.object("exit")));
  failure.last_stderr = fields.text("stderr");
  failure.cause = fields.text("cause");
  failure.hang = fields.text("hang");
  failure.heartbeat = fields.text("heartbeat");
  failure.host = fields.text("host");
  failure.message = fields.text("message");
  failure.time = fields.real("time");
  failure.lived = fields.time("lived_ms");
  return failure;
}

// Reports show what the first one has written; if all ranks fail, the host gets this from each
// node.
ControlJson failures_json(const std::vector<ProcessFailure>& failures) {
  auto list = ControlJson::array();
  for (const auto& failure : first_of(failures, kMostFailures))
    list.push_back(failure_to_json(failure, list.empty() ? kLongestText : kLongestOfOthers));
  return list;
}

std::vector<ProcessFailure> failures_of(const ControlFields& fields) {
  std::vector<ProcessFailure> failures;
  for (const auto& object : fields.list("failures", kMostFailures))
    failures.push_back(failure_of_json(object));
  return failures;
}

ControlJson tally_json(const RestartTally& tally) {
  return {{"rank", tally.last.rank},
          {"exit", exit_json(tally.last.exit)},
          {"lived_ms", in_ms(tally.last.lived)},
          {"progress", cut(tally.last.progress, kLongestProgress)},
          {"unhealthy", tally.unhealthy},
          {"quick", tally.quick},
          {"same", tally.same}};
}

RestartTally tally_of(const ControlFields& fields) {
  RestartTally tally;
  tally.last = {fields.integer("rank", ProcessFailure::kNoRank, kMostRanks),
                exit_of(ControlFields(fields.object("exit"))), fields.time("lived_ms"),
                fields.text("progress")};
  tally.unhealthy = fields.integer("unhealthy", 0, INT_MAX - 1);
  tally.quick = fields.integer("quick", 0, INT_MAX - 1);
  tally.same = fields.integer("same", 0, INT_MAX - 1);
  return tally;
}

ControlJson agreed_json(const std::map<std::string, std::string>& agreed) {
  auto object = ControlJson::object();
  for (const auto& [option, value] : agreed) object[option] = cut(value);
  return object;
}

std::map<std::string, std::string> agreed_of(const ControlJson& object) {
  if (!object.is_object() || object.size() > kMostAgreed) throw std::invalid_argument("agreed");
  std::map<std::string, std::string> agreed;
  const ControlFields fields(object);
  for (const auto& [option, value] : object.items()) agreed[option] = fields.text(option.c_str());
  return agreed;
}

ControlJson pace_json(const NodePace& pace) {
  auto phases = ControlJson::array();
  for (const auto& one : first_of(pace.phases, kMostPhases)) {
    phases.push_back({{"phase", one.phase},
                      {"slowest_rank", one.slowest_rank},
                      {"slowest", {one.slowest.p95, one.slowest.mean}},
                      {"others", {one.others.p95, one.others.mean}},
                      {"other_ranks", one.other_ranks}});
  }
  return {{"node", pace.node},
          {"host", pace.host},
          {"step_seconds", pace.step_seconds},
          {"phases", phases}};
}

PaceTimes pace_times_of(const ControlFields& fields, const char* name) {
  const auto& pair = fields.list(name, 2);
  if (pair.size() != 2 || !pair[0].is_number() || !pair[1].is_number())
    throw std::invalid_argument(name);
  return {pair[0].get<double>(), pair[1].get<double>()};
}

NodePace pace_of(const ControlFields& fields) {
  NodePace pace{.node = fields.integer("node", 0, kMostNodes),
                .host = fields.text("host"),
                .step_seconds = fields.real("step_seconds")};
  for (const auto& object : fields.list("phases", kMostPhases)) {
    const ControlFields one(object);
    pace.phases.push_back({one.text("phase"), one.integer("slowest_rank", 0, kMostRanks),
                           pace_times_of(one, "slowest"), pace_times_of(one, "others"),
                           one.integer("other_ranks", 0, kMostRanks)});
  }
  return pace;
}

ControlJson straggler_json(const Straggler& straggler) {
  return {{"rank", straggler.rank},   {"node", straggler.node},       {"host", straggler.host},
          {"phase", straggler.phase}, {"seconds", straggler.seconds}, {"others", straggler.others}};
}

Straggler straggler_of(const ControlFields& fields) {
  return {fields.integer("rank", 0, kMostRanks),
          fields.integer("node", 0, kMostNodes),
          fields.text("host"),
          fields.text("phase"),
          fields.real("seconds"),
          fields.real("others")};
}

Alive alive_of(const ControlFields& fields) {
  Alive alive{.received = fields.number("received", 0, kLastEpoch)};
  if (fields.has("pace")) alive.pace = pace_of(ControlFields(fields.object("pace")));
  if (fields.has("straggler"))
    alive.straggler = straggler_of(ControlFields(fields.object("straggler")));
  return alive;
}

struct Writer {
  ControlJson operator()(const Hello& m) const {
    return {{"type", "hello"},
            {"id", m.id},
            {"run_id", m.run_id},
            {"min_nodes", m.min_nodes},
            {"max_nodes", m.max_nodes},
            {"node_rank", m.node_rank},
            {"host", m.host},
            {"address", m.address},
            {"pid", m.pid},
            {"local_world_size", m.local_world_size},
            {"role", m.role},
            {"max_restarts", m.max_restarts},
            {"agreed", agreed_json(m.agreed)},
            {"sort_key", m.sort_key},
            {"port", m.port},
            {"member", m.member},
            {"epoch", m.epoch},
            {"returned", m.returned},
            {"alone", m.alone},
            {"session", m.session},
            {"received", m.received}};
  }
  ControlJson operator()(const Join& m) const { return {{"type", "join"}, {"port", m.port}}; }
  ControlJson operator()(const Failed& m) const {
    return {{"type", "failed"}, {"failure", failure_to_json(m.failure)}};
  }
  ControlJson operator()(const Ended& m) const {
    return {{"type", "ended"},
            {"failures", failures_json(m.failures)},
            {"stopped", m.stopped},
            {"preempted", m.preempted}};
  }
  ControlJson operator()(const Leave& m) const {
    return {{"type", "leave"}, {"signal", m.signal}, {"why", cut(m.why)}};
  }
  ControlJson operator()(const Accepted& m) const {
    return {{"type", "accepted"}, {"epoch", m.epoch}};
  }
  ControlJson operator()(const Alive& m) const {
    ControlJson object{{"type", "alive"}, {"received", m.received}};
    if (m.pace) object["pace"] = pace_json(*m.pace);
    if (m.straggler) object["straggler"] = straggler_json(*m.straggler);
    return object;
  }
  ControlJson operator()(const Status& m) const {
    return {{"type", "status"}, {"id", m.id},           {"run_id", m.run_id}, {"epoch", m.epoch},
            {"hosts", m.hosts}, {"address", m.address}, {"port", m.port}};
  }
  ControlJson operator()(const Welcome& m) const {
    return {{"type", "welcome"},
            {"node", m.node},
            {"heartbeat_ms", m.heartbeat.count()},
            {"patience_ms", m.patience.count()},
            {"session", m.session},
            {"resumed", m.resumed},
            {"received", m.received}};
  }
  ControlJson operator()(const Refused& m) const {
    return {{"type", "refused"}, {"why", cut(m.why)}};
  }
  ControlJson operator()(const Note& m) const { return {{"type", "note"}, {"text", cut(m.text)}}; }
  ControlJson operator()(const Round& m) const { return round_json(m, "round"); }
  ControlJson operator()(const Standby& m) const { return round_json(m.round, "standby"); }
  ControlJson operator()(const Go& m) const { return {{"type", "go"}, {"epoch", m.epoch}}; }
  static ControlJson round_json(const Round& m, const char* type) {
    auto successors = ControlJson::array();
    for (const auto& one : first_of(m.successors, kMaxSuccessors))
      successors.push_back({{"node", one.node},
                            {"address", one.address},
                            {"port", one.port},
                            {"member", one.member}});
    return {{"type", type},
            {"epoch", m.info.epoch},
            {"job", cut(m.info.job)},
            {"restart_count", m.info.restart_count},
            {"group_rank", m.info.group_rank},
            {"group_world_size", m.info.group_world_size},
            {"first_rank", m.info.first_rank},
            {"world_size", m.info.world_size},
            {"first_role_rank", m.info.first_role_rank},
            {"role_world_size", m.info.role_world_size},
            {"master_addr", m.info.master_addr},
            {"master_port", m.info.master_port},
            {"successors", successors},
            {"tally", tally_json(m.tally)},
            {"changes", m.changes}};
  }
  ControlJson operator()(const Stop& m) const {
    return {{"type", "stop"}, {"leaving", m.leaving}, {"text", cut(m.text)}};
  }
  ControlJson operator()(const Verdict& m) const {
    return {{"type", "verdict"},
            {"over", m.over},
            {"outcome", static_cast<int>(m.outcome)},
            {"restart", m.verdict.restart},
            {"number", m.verdict.number},
            {"delay_ms", m.verdict.delay.count()},
            {"gave_up", cut(m.verdict.gave_up)},
            {"text", cut(m.text)},
            {"failures", failures_json(m.failures)}};
  }
};

Hello hello_of(const ControlFields& f) {
  Hello hello;
  hello.id = f.text("id");
  hello.run_id = f.text("run_id");
  hello.min_nodes = f.integer("min_nodes", 1, kMostNodes);
  hello.max_nodes = f.integer("max_nodes", hello.min_nodes, kMostNodes);
  hello.node_rank = f.integer("node_rank", -1, kMostNodes);
  hello.host = f.text("host");
  hello.address = f.text("address");
  hello.pid = f.integer("pid", 0, INT_MAX);
  hello.local_world_size = f.integer("local_world_size", 1, 4096);
  hello.role = f.text("role");
  hello.max_restarts = f.integer("max_restarts", 0, INT_MAX);
  hello.agreed = agreed_of(f.object("agreed"));
  hello.sort_key = f.text("sort_key");
  hello.port = f.integer("port", 0, 65535);
  hello.member = f.text("member");
  hello.epoch = f.number("epoch", -1, kLastEpoch);
  hello.returned = f.flag("returned");
  hello.alone = f.has("alone") && f.flag("alone");
  hello.session = f.text("session");
  hello.received = f.number("received", 0, kLastEpoch);
  return hello;
}

Round round_of(const ControlFields& f) {
  Round round;
  round.info.epoch = f.number("epoch", 0, kLastEpoch);
  round.info.job = f.text("job");
  round.info.restart_count = f.integer("restart_count", 0, INT_MAX);
  round.info.group_world_size = f.integer("group_world_size", 1, kMostNodes);
  round.info.group_rank = f.integer("group_rank", 0, round.info.group_world_size - 1);
  round.info.world_size = f.integer("world_size", 1, kMostRanks);
  round.info.first_rank = f.integer("first_rank", 0, round.info.world_size - 1);
  round.info.role_world_size = f.integer("role_world_size", 1, kMostRanks);
  round.info.first_role_rank = f.integer("first_role_rank", 0, round.info.role_world_size - 1);
  round.info.master_addr = f.text("master_addr");
  round.info.master_port = f.integer("master_port", 1, 65535);
  for (const auto& object : f.list("successors", kMaxSuccessors)) {
    const ControlFields one(object);
    round.successors.push_back({one.integer("node", 0, INT_MAX), one.text("address"),
                                one.integer("port", 0, 65535), one.text("member")});
  }
  round.tally = tally_of(ControlFields(f.object("tally")));
  round.changes = f.integer("changes", 0, INT_MAX - 1);
  return round;
}

Status status_of(const ControlFields& f) {
  Status status;
  status.id = f.text("id");
  status.run_id = f.text("run_id");
  status.epoch = f.number("epoch", -1, kLastEpoch);
  status.hosts = f.flag("hosts");
  status.address = f.text("address");
  status.port = f.integer("port", 0, 65535);
  return status;
}

Verdict verdict_of(const ControlFields& f) {
  Verdict verdict;
  verdict.over = f.flag("over");
  verdict.outcome =
      static_cast<Outcome>(f.integer("outcome", 0, static_cast<int>(Outcome::kGuardianGone)));
  verdict.verdict = {f.flag("restart"), f.integer("number", 0, INT_MAX), f.time("delay_ms"),
                     f.text("gave_up")};
  verdict.text = f.text("text");
  verdict.failures = failures_of(f);
  return verdict;
}

std::optional<ControlMessage> message_of(const ControlJson& object) {
  const ControlFields f(object);
  const std::string type = f.text("type");
  if (type == "alive") return alive_of(f);
  if (type == "accepted") return Accepted{f.number("epoch", 0, kLastEpoch)};
  if (type == "go") return Go{f.number("epoch", 0, kLastEpoch)};
  if (type == "standby") return Standby{round_of(f)};
  if (type == "status") return status_of(f);
  if (type == "hello") return hello_of(f);
  if (type == "join") return Join{f.integer("port", 0, 65535)};
  if (type == "failed") return Failed{failure_of_json(f.object("failure"))};
  if (type == "ended") return Ended{failures_of(f), f.flag("stopped"), f.flag("preempted")};
  if (type == "leave") return Leave{f.integer("signal", 0, 64), f.text("why")};
  if (type == "welcome")
    return Welcome{f.integer("node", 0, INT_MAX),
                   f.time("heartbeat_ms"),
                   f.time("patience_ms"),
                   f.text("session"),
                   f.flag("resumed"),
                   f.number("received", 0, kLastEpoch)};
  if (type == "refused") return Refused{f.text("why")};
  if (type == "note") return Note{f.text("text")};
  if (type == "round") return round_of(f);
  if (type == "stop") return Stop{f.flag("leaving"), f.text("text")};
  if (type == "verdict") return verdict_of(f);
  return std::nullopt;
}

}  // namespace

std::string to_json_text(const ControlMessage& message) {
  return std::visit(Writer{}, message).dump(-1, ' ', false, ControlJson::error_handler_t::replace);
}

std::optional<ControlMessage> parse_control_message(std::string_view text) noexcept {
  try {
    const auto depth = [](int level, ControlJson::parse_event_t, ControlJson&) {
      if (level > kDeepest) throw std::invalid_argument("too deep");
      return true;
    };
    return message_of(ControlJson::parse(text, depth));
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

}  // namespace ddp::launch
