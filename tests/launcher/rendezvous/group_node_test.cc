// What a node does about each event: the stage that it is in afterwards, and its actions in order.
#include "launcher/rendezvous/group_node.h"

#include <fmt/format.h>

#include <array>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/support/catch.h"

namespace ddp::launch::group_node_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using enum GroupStage;

const Clock::time_point kNow = Clock::time_point{} + seconds(1'000);
const Place kHost{"10.0.0.1", 29400}, kOther{"10.0.0.2", 4000}, kOwn{"10.0.0.3", 5000};

std::string text_of(const Place& place) { return place_text(place); }

// The action, with what a reader of the table has to see of it.
struct Words {
  std::string operator()(const actions::Tell& a) const {
    constexpr std::array kinds{"start", "stop", "restart", "end", "note"};
    return std::string("tell ") + kinds[static_cast<std::size_t>(a.news.kind)];
  }
  std::string operator()(const actions::Fail&) const { return "fail"; }
  std::string operator()(const actions::Search& a) const {
    return a.may_host ? "search" : "search as a guest";
  }
  std::string operator()(const actions::Connect& a) const { return "connect " + text_of(a.place); }
  std::string operator()(const actions::TryAnother&) const { return "try another"; }
  std::string operator()(const actions::RestSearch&) const { return "rest"; }
  std::string operator()(const actions::ProlongSearch&) const { return "prolong"; }
  std::string operator()(const actions::Ask& a) const {
    return fmt::format("ask {}", a.places.size());
  }
  std::string operator()(const actions::StopAsking&) const { return "stop asking"; }
  std::string operator()(const actions::SayHello&) const { return "hello"; }
  std::string operator()(const actions::Send& a) const {
    const std::string text = to_json_text(a.message);
    const auto type = text.find("\"type\":\"") + 8;
    return "send " + text.substr(type, text.find('"', type) - type);
  }
  std::string operator()(const actions::Resend&) const { return "resend"; }
  std::string operator()(const actions::Disconnect&) const { return "disconnect"; }
  std::string operator()(const actions::OpenPort&) const { return "open port"; }
  std::string operator()(const actions::OpenStore&) const { return "open store"; }
  std::string operator()(const actions::CloseStore&) const { return "close store"; }
  std::string operator()(const actions::Host& a) const {
    return fmt::format("host after {}", a.history.epoch);
  }
  std::string operator()(const actions::Retire&) const { return "retire"; }
  std::string operator()(const actions::Claim&) const { return "claim"; }
  std::string operator()(const actions::WriteMembers& a) const {
    return fmt::format("write {}", a.members.epoch);
  }
  std::string operator()(const actions::RemoveMembers&) const { return "remove"; }
  // Fresh: the deaths of other nodes that are found now count.
  std::string operator()(const actions::Seek& a) const {
    return !a.loss ? "seek" : a.loss->fresh_until > kNow ? "seek, fresh" : "seek, stale";
  }
  std::string operator()(const actions::Avoid& a) const { return "avoid " + text_of(a.place); }
  std::string operator()(const actions::Settle& a) const {
    return a.hosts ? "settle as host" : "settle";
  }
  std::string operator()(const actions::Resign&) const { return "resign"; }
  std::string operator()(const actions::EndJob&) const { return "end job"; }
};

struct Given {
  GroupSettings settings{};
  bool authority_leads = false;
  NodeState state{};
  Sight sight{};
};

struct Row {
  const char* name;
  std::function<void(Given&)> given;
  NodeEvent event;
  GroupStage stage;
  const char* actions;
};

Given nothing_yet() {
  Given given;
  given.settings.rules = {.run_id = "job", .min_nodes = 1, .max_nodes = 4};
  given.settings.host = "10.0.0.1";
  given.settings.port = 29400;
  given.settings.token = "secret";
  given.settings.local_addr = kOwn.address;
  given.state = new_node(given.settings, "own", kNow);
  given.sight.now = kNow;
  given.sight.present = kHost;
  return given;
}

void check(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    Given given = nothing_yet();
    row.given(given);
    GroupNode node(given.settings, given.authority_leads, given.state);
    std::string done;
    for (const NodeAction& action : node.handle(row.event, given.sight))
      done += (done.empty() ? "" : "; ") + std::visit(Words{}, action);
    INFO(row.name);
    CHECK(done == row.actions);
    CHECK(node.state().stage == row.stage);
  }
}

// ---- states ------------------------------------------------------------------------------------

auto in(GroupStage stage, std::function<void(Given&)> more = {}) {
  return [stage, more](Given& given) {
    given.state.stage = stage;
    given.state.host.open = stage == kGreeting || stage == kMember;
    given.state.host.heard = kNow;
    given.state.host.next_beat = kNow + seconds(1);
    given.state.hosting.port = kOwn.port;
    if (stage == kSeeking) given.state.quest.sought = Sought::kNextHost;
    if (more) more(given);
  };
}

Round round_of(int nodes) {
  Round round;
  round.info.epoch = 7;
  round.info.group_world_size = nodes;
  round.info.group_rank = 1;
  round.successors = {{2, kOther.address, kOther.port, "other"}};
  return round;
}

void with_round(Given& given) {
  given.state.host.id = "host";
  given.state.round.last = LastRound{.round = round_of(2), .took_part = true, .host = kHost};
  given.state.round.epoch = 7;
}

void at_work(Given& given) {
  with_round(given);
  given.state.round.work = Work::kRunning;
}

void resuming(Given& given) {
  at_work(given);
  given.state.quest.sought = Sought::kSameHost;
}

void at_endpoint(Given& given) {
  static const std::vector<Place> own{kHost};
  given.sight.own_places = own;
  given.state.quest.at_endpoint = true;
}

void with_last_members(Given& given) {
  given.state.quest.last_members = {.epoch = 3, .places = {kOther}};
}

// Has asked one other place since then.
void candidate(Given& given, Inquiry::Found found, Clock::time_point since = kNow) {
  at_endpoint(given);
  given.state.quest.candidacy = Candidacy{Newcomer({{kOther, false}}, "own", -1), since};
  given.sight.found = {{.place = kOther, .found = found}};
}

Welcome welcome(bool resumed = false) {
  return {.heartbeat = seconds(3), .patience = seconds(15), .session = "host", .resumed = resumed};
}

Status sends_to(const Place& place, const std::string& run_id = "job") {
  return {.id = "other", .run_id = run_id, .address = place.address, .port = place.port};
}

events::Received from_host(ControlMessage message) { return {std::move(message)}; }

Authority::Step step(Authority::Step::Kind kind) { return {kind, kOther}; }

// ---- the table ---------------------------------------------------------------------------------

TEST_CASE("a node enters: it searches, greets, and joins the host that welcomes it") {
  const auto awaits = [](Given& g) { g.state.round.work = Work::kAwaited; };
  const auto returns = [](Given& g) { with_last_members(g); };
  const auto etcd = [](Given& g) { g.authority_leads = true; };
  check({
      {"joins", in(kIdle), events::Join{}, kSearching, "search"},
      {"connects early", in(kIdle), events::Connect{}, kSearching, "search"},
      {"connects twice", in(kSearching), events::Connect{}, kSearching, ""},
      {"etcd knows the host", in(kIdle, etcd), events::Join{}, kSeeking, "seek"},
      {"has returned", in(kIdle, returns), events::Join{}, kSearching, "ask 1; search"},
      {"connected", in(kSearching), events::Opened{kOwn.address}, kGreeting, "hello"},
      {"welcome", in(kGreeting), from_host(welcome()), kMember, "settle"},
      {"welcome, after join()", in(kGreeting, awaits), from_host(welcome()), kMember,
       "settle; open store"},
      {"the store's port", in(kMember), events::StoreOpened{1}, kMember, "send join"},
      {"sent on", in(kGreeting), from_host(sends_to(kOther)), kSearching,
       "disconnect; connect 10.0.0.2:4000"},
      {"no host there", in(kGreeting), from_host(sends_to({})), kSearching,
       "disconnect; try another"},
      {"refused", in(kGreeting), from_host(Refused{"full"}), kGreeting, "fail"},
      {"refused again", in(kGreeting, with_round), from_host(Refused{"full"}), kOver, "tell end"},
      {"nothing there", in(kSearching), events::Unreachable{}, kSearching, ""},
  });
}

TEST_CASE("a node at an endpoint hosts once no other place may have the job") {
  const auto asks = [](Inquiry::Found found) {
    return in(kStanding, [found](Given& g) { candidate(g, found); });
  };
  const auto waited = [](Given& g) { candidate(g, Inquiry::Found::kSilence, kNow - seconds(600)); };
  check({
      {"knows no other place", in(kSearching, at_endpoint), events::Listening{}, kSearching,
       "host after -1; settle as host; connect 10.0.0.1:29400"},
      {"knows one",
       in(kSearching,
          [](Given& g) {
            at_endpoint(g);
            with_last_members(g);
          }),
       events::Listening{}, kStanding, "ask 1"},
      {"it is silent", asks(Inquiry::Found::kNothing), events::TurnEnds{}, kStanding, ""},
      {"it refuses", asks(Inquiry::Found::kRefused), events::TurnEnds{}, kSearching,
       "stop asking; host after -1; settle as host; connect 10.0.0.1:29400"},
      {"join_timeout", in(kStanding, waited), events::TurnEnds{}, kOver,
       "tell note; stop asking; remove; tell end"},
      {"the host calls", asks(Inquiry::Found::kNothing), events::Called{sends_to(kOther)},
       kSearching, "disconnect; connect 10.0.0.2:4000"},
      {"the host of another job calls", asks(Inquiry::Found::kNothing),
       events::Called{sends_to(kOther, "else")}, kStanding, ""},
  });
}

TEST_CASE("a host is lost when it is silent, gone, misunderstood or elsewhere") {
  const auto silent = [](milliseconds time) {
    return in(kMember, [time](Given& g) {
      with_round(g);
      g.state.round.work = Work::kAwaited;
      g.state.host.heard = kNow - time;
    });
  };
  const auto gone = [](Given& g) {
    resuming(g);
    g.sight.refused = true;
  };
  const auto late = [](Given& g) {
    resuming(g);
    g.state.host.heard = kNow - seconds(15);
  };
  const auto was_asleep = [](Given& g) {
    at_work(g);
    g.state.stalled = kNow;
  };
  const char* lost = "disconnect; tell stop; seek, fresh";
  const char* stale = "disconnect; tell stop; seek, stale";
  check({
      {"14.9 s", silent(milliseconds(14'900)), events::TurnEnds{}, kMember, ""},
      {"15 s", silent(seconds(15)), events::TurnEnds{}, kSeeking, "disconnect; seek, stale"},
      {"closed", in(kMember, at_work), events::Closed{"reset", true}, kSearching,
       "disconnect; connect 10.0.0.1:29400"},
      {"misunderstood", in(kMember, at_work), events::Closed{"malformed", false}, kSeeking, lost},
      {"asleep meanwhile", in(kMember, was_asleep), events::Closed{"malformed", false}, kSeeking,
       stale},
      {"again", in(kSearching, resuming), events::Unreachable{}, kSearching, ""},
      {"refuses", in(kSearching, gone), events::Unreachable{}, kSeeking, lost},
      {"too late", in(kSearching, late), events::Unreachable{}, kSeeking, stale},
      {"resumed", in(kGreeting, resuming), from_host(welcome(true)), kMember, "settle; resend"},
      {"left behind", in(kGreeting, resuming), from_host(welcome()), kMember, "settle; tell stop"},
      {"it has another host", in(kGreeting, resuming), from_host(sends_to(kOther)), kSeeking,
       stale},
      {"it gave this node up", in(kMember, at_work), from_host(Refused{"silent"}), kSeeking, stale},
  });
}

TEST_CASE("what came while a node was stopped is read before a wait ends") {
  const auto stopped = [](GroupStage stage, std::function<void(Given&)> more) {
    return in(stage, [more](Given& g) {
      g.state.awake = kNow - seconds(600);
      g.state.host.heard = g.state.awake;
      g.state.host.next_beat = g.state.awake + seconds(1);
      more(g);
    });
  };
  const auto stands = [](Given& g) { candidate(g, Inquiry::Found::kSilence, g.state.awake); };
  const auto guest = [](Given& g) { g.state.quest.waits_since = g.state.awake; };
  check({
      {"for the host", stopped(kMember, at_work), events::TurnEnds{}, kMember, ""},
      {"for other places", stopped(kStanding, stands), events::TurnEnds{}, kStanding, ""},
      {"as one that searches", stopped(kSearching, stands), events::RepliesRead{}, kSearching,
       "prolong"},
      {"for the job that runs", stopped(kSearching, guest), events::TurnEnds{}, kSearching, ""},
  });
}

TEST_CASE("who has lost the host stops, asks the authority, and hosts or follows as it says") {
  using Kind = Authority::Step::Kind;
  const auto lost = [](Given& g) {
    at_work(g);
    g.state.round.work = Work::kLost;
  };
  const auto static_lost = [](Given& g) {
    at_work(g);
    g.settings.rules.fixed_ranks = true;
  };
  const auto rests = [](Given& g) {
    with_round(g);
    g.state.hosting.rests_until = kNow + seconds(1);
  };
  const auto held_there = in(kGreeting, [](Given& g) {
    g.state.quest.sought = Sought::kNextHost;
    g.sight.present = kOther;
  });
  check({
      {"workers have ended", in(kSeeking, lost), events::WorkersEnded{}, kSeeking,
       "close store; tell restart"},
      {"static", in(kMember, static_lost), events::Closed{"malformed", false}, kOrphaned,
       "disconnect; tell stop"},
      {"static, workers ended", in(kOrphaned, static_lost), events::WorkersEnded{}, kOver,
       "tell end"},
      {"wait", in(kSeeking, with_round), events::Advised{step(Kind::kWait), ""}, kSeeking, ""},
      {"host", in(kSeeking, with_round), events::Advised{step(Kind::kHost), ""}, kSearching,
       "disconnect; tell note; host after 7; settle as host; connect 10.0.0.3:5000"},
      {"host, but it was deposed just now", in(kSeeking, rests),
       events::Advised{step(Kind::kHost), ""}, kSeeking, ""},
      {"follow", in(kSeeking, with_round), events::Advised{step(Kind::kConnect), ""}, kSearching,
       "disconnect; connect 10.0.0.2:4000"},
      {"follow, and is there", held_there, events::Advised{step(Kind::kConnect), ""}, kGreeting,
       ""},
      {"give up", in(kSeeking, with_round), events::Advised{{}, "no majority"}, kOver, "tell end"},
      {"nobody there",
       in(kSearching,
          [](Given& g) {
            with_round(g);
            g.state.quest.sought = Sought::kNextHost;
          }),
       events::Unreachable{}, kSeeking, "disconnect; avoid 10.0.0.1:29400"},
  });
}

TEST_CASE(
    "a host that others have deposed seeks the next one, or makes way for the job that runs") {
  const auto hosting = [](Given& g) { g.state.hosting.active = true; };
  const auto hosts_round = [](Given& g) {
    at_work(g);
    g.state.hosting.active = true;
  };
  const auto claims = [](int left) {
    return in(kMember, [left](Given& g) {
      g.state.hosting.active = true;
      g.state.hosting.claims_left = left;
    });
  };
  events::Deposed deposed;
  deposed.successor = kOther;
  check({
      {"with a round", in(kMember, hosts_round), deposed, kSeeking,
       "disconnect; tell stop; seek, fresh"},
      {"without", in(kMember, hosting), deposed, kSearching,
       "disconnect; tell note; rest; disconnect; connect 10.0.0.2:4000"},
      {"wants the endpoint", claims(1), events::RepliesRead{}, kMember, "claim"},
      {"has it", claims(0), events::RepliesRead{}, kMember, ""},
      {"a name has changed", in(kMember, hosting), events::EndpointsChanged{}, kMember, "claim"},
  });
}

TEST_CASE("a round begins when all have accepted it, and ends when the host says so") {
  const auto proposed = [](Given& g) {
    with_round(g);
    g.state.round.proposed = true;
    g.state.round.work = Work::kAwaited;
  };
  const auto ended = [](Given& g) { with_round(g); };
  check({
      {"proposed", in(kMember), from_host(round_of(2)), kMember, "write 7; send accepted"},
      {"a spare", in(kMember), from_host(Standby{round_of(2)}), kMember, "write -1"},
      {"begins", in(kMember, proposed), from_host(Go{7}), kMember, "close store; tell start"},
      {"another one", in(kMember, proposed), from_host(Go{6}), kMember, ""},
      {"a worker failed", in(kMember, at_work), events::WorkerFailed{}, kMember, "send failed"},
      {"that of no round", in(kMember, ended), events::WorkerFailed{}, kMember, ""},
      {"stop", in(kMember, at_work), from_host(Stop{}), kMember, "tell stop"},
      {"stop, but none runs", in(kMember, ended), from_host(Stop{}), kMember, ""},
      {"ended", in(kMember, at_work), events::WorkersEnded{}, kMember, "send ended"},
      {"restart", in(kMember, ended), from_host(Verdict{}), kMember, "close store; tell restart"},
      {"over", in(kMember, ended), from_host(Verdict{.over = true}), kOver,
       "retire; remove; end job; tell end"},
  });
}

TEST_CASE("a node leaves or withdraws at once, with fixed ranks once it can say so") {
  const auto fixed = [](Given& g) { g.settings.rules.fixed_ranks = true; };
  const auto withdrawn = [](Given& g) {
    g.settings.rules.fixed_ranks = true;
    g.state.round.withdrawn = Leave{.why = "preflight"};
  };
  check({
      {"signal", in(kMember, at_work), events::Leave{15}, kMember, "retire; resign; send leave"},
      {"signal, no host", in(kSearching), events::Leave{15}, kSearching, "retire; resign"},
      {"withdraws", in(kMember), events::Withdraw{"preflight"}, kOver,
       "retire; resign; send leave; tell end"},
      {"fixed ranks, no host", in(kSearching, fixed), events::Withdraw{"preflight"}, kSearching,
       "tell note"},
      {"fixed ranks, welcome", in(kGreeting, withdrawn), from_host(welcome()), kOver,
       "settle; retire; resign; send leave; tell end"},
  });
}

TEST_CASE("a process that did not run for long knows that its words may be old") {
  Given given = nothing_yet();
  GroupNode node(given.settings, false, given.state);
  given.sight.now = kNow + seconds(11);  // patience without a heartbeat: 12 s
  node.handle(events::TurnBegins{}, given.sight);
  CHECK(node.state().stalled == Clock::time_point{});
  given.sight.now += seconds(13);
  node.handle(events::TurnBegins{}, given.sight);
  CHECK(node.state().stalled == given.sight.now);
}

TEST_CASE("a node wakes up for a beat, for silence, and for what it has put off") {
  Given given = nothing_yet();
  in(kMember)(given);
  CHECK(GroupNode(given.settings, false, given.state).deadline(given.sight) == kNow + seconds(1));
  given.state.quest.retry_at = kNow + milliseconds(20);
  CHECK(GroupNode(given.settings, false, given.state).deadline(given.sight) ==
        kNow + milliseconds(20));
  CHECK(GroupNode(given.settings, false, nothing_yet().state).deadline(given.sight) ==
        std::nullopt);
}

}  // namespace
}  // namespace ddp::launch::group_node_test
