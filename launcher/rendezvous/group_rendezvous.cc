#include "launcher/rendezvous/group_rendezvous.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "launcher/base/errors.h"
#include "launcher/base/random_hex.h"
#include "launcher/base/system/sockets.h"
#include "launcher/rendezvous/follow/election.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

constexpr auto kSeeOff = std::chrono::seconds(5);
constexpr std::chrono::milliseconds kVisit{500};

SearchSettings search_settings(const GroupSettings& settings) {
  const bool fixed = settings.rules.fixed_ranks;
  SearchSettings search{.endpoints = settings.endpoints()};
  search.must_host = fixed ? settings.node_rank == 0 : settings.is_host.value_or(false);
  search.token = settings.token;
  search.timeout = settings.connect_timeout;
  search.reach_note = settings.rules.reach_note;
  return search;
}

GroupNode make_node(GroupSettings settings, const Authority& authority) {
  if (!settings.shares_port()) settings.rules.master_port = 0;
  NodeState state = new_node(settings, random_hex(), Clock::now());
  return {std::move(settings), authority.finds_first_host(), std::move(state)};
}

template <typename... Cases>
struct Match : Cases... {
  using Cases::operator()...;
};
template <typename... Cases>
Match(Cases...) -> Match<Cases...>;

}  // namespace

GroupRendezvous::GroupRendezvous(GroupSettings settings, std::unique_ptr<Authority> authority)
    : authority_(authority ? std::move(authority) : std::make_unique<Election>(settings)),
      node_(make_node(settings, *authority_)),
      search_(search_settings(settings)),
      store_(settings.shares_port() ? settings.port : 0, settings.rank0_store),
      signpost_(settings.token, settings.rules.patience()),
      members_file_(settings.members_file, settings.rules.run_id, settings.endpoints()),
      watch_(settings.endpoints()) {}

GroupRendezvous::~GroupRendezvous() {
  if (channel_) channel_->finish_sending();
  if (coordinator_) {
    coordinator_->handle({});  // its own agent's last words come first
    channel_.reset();
    if (coordinator_->over()) coordinator_->see_off(Clock::now() + kSeeOff);
  }
}

// ---- events and actions ------------------------------------------------------------------------

Sight GroupRendezvous::sight() const {
  const EndpointSockets& own = search_.own();
  return {.now = Clock::now(),
          .present = search_.present(),
          .follows = search_.follows(),
          .exhausted = search_.exhausted(),
          .refused = search_.was_refused(),
          .idle = search_.is_idle(),
          .endpoints = watch_.endpoints(),
          .own_places = own.places(),
          .own_rank = own.rank(),
          .elsewhere = own.elsewhere(),
          .unknown = watch_.unknown(),
          .own_address = authority_->own_address(),
          .found = leads_ ? leads_->findings() : std::vector<Inquiry::Finding>{}};
}

void GroupRendezvous::feed(const NodeEvent& event) {
  for (NodeAction& action : node_.handle(event, sight())) execute(std::move(action));
}

// An action's own events come before the next action.
void GroupRendezvous::execute(NodeAction action) {
  const Match match{
      [&](actions::Tell& a) {
        if (a.news.kind == JobNews::Kind::kStart) a.news.round.store_socket = store_.source();
        news_.push_back(std::move(a.news));
      },
      [&](actions::Fail& a) { throw LaunchError(kExitFailed, a.why); },
      [&](actions::Search& a) {
        search_.begin(a.may_host);
        take_search_results();
      },
      [&](actions::Connect& a) {
        search_.follow({a.place}, a.patience);
        take_search_results();
      },
      [&](actions::TryAnother& a) {
        search_.try_another(a.why);
        take_search_results();
      },
      [&](actions::RestSearch&) { search_.rest(); },
      [&](actions::ProlongSearch&) { search_.postpone(); },
      [&](actions::Ask& a) {
        const GroupSettings& settings = node_.settings();
        leads_.emplace(a.places, a.question, settings.token, settings.rules.patience());
      },
      [&](actions::StopAsking&) { leads_.reset(); },
      [&](actions::SayHello&) { say_hello(); },
      [&](actions::Send& a) {
        if (channel_) channel_->send(a.message);
      },
      [&](actions::Resend&) {
        for (const auto& text : node_.state().host.session.unconfirmed())
          channel_->send_text(*text);
      },
      [&](actions::Disconnect&) { channel_.reset(); },
      [&](actions::OpenPort& a) { open_port(a.address); },
      [&](actions::OpenStore& a) { feed(events::StoreOpened{store_.prepare(a.address)}); },
      [&](actions::CloseStore&) { store_.close(); },
      [&](actions::Host& a) { host(std::move(a)); },
      [&](actions::Retire& a) {
        if (coordinator_ && !coordinator_->over()) coordinator_->retire(a.hand_over);
      },
      [&](actions::Claim&) { claim_endpoints(); },
      [&](actions::WriteMembers& a) {
        members_file_.write(a.members);
        tell_note(members_file_.take_note());
      },
      [&](actions::RemoveMembers&) { members_file_.remove(); },
      [&](actions::Seek& a) { authority_->seek(std::move(a.loss), a.status); },
      [&](actions::Avoid& a) { authority_->avoid(a.place); },
      [&](actions::Settle& a) { authority_->settle(a.hosts); },
      [&](actions::Resign&) { authority_->resign(); },
      [&](actions::EndJob&) { authority_->end_job(); }};
  std::visit(match, action);
}

void GroupRendezvous::tell_note(const std::string& text) {
  if (!text.empty()) news_.push_back(make_news(JobNews::Kind::kNote, text));
}

// ---- the agent ---------------------------------------------------------------------------------

void GroupRendezvous::read_members() {
  if (node_.state().stage != GroupStage::kIdle || authority_->finds_first_host()) return;
  feed(events::MembersRead{members_file_.read()});
  tell_note(members_file_.take_note());
}

void GroupRendezvous::connect() {
  read_members();
  feed(events::Connect{});
}

void GroupRendezvous::join() {
  read_members();
  feed(events::Join{});
}

void GroupRendezvous::report_failure(const ProcessFailure& failure) {
  feed(events::WorkerFailed{failure});
}

// ---- the loop ----------------------------------------------------------------------------------

void GroupRendezvous::add_poll_fds(std::vector<pollfd>& fds) const {
  search_.add_poll_fds(fds);
  if (coordinator_) coordinator_->add_poll_fds(fds);
  store_.add_poll_fds(fds);
  signpost_.add_poll_fds(fds);
  if (leads_) leads_->add_poll_fds(fds);
  if (node_.watches_endpoints(sight())) watch_.add_poll_fds(fds);
  authority_->add_poll_fds(fds);
  if (visit_) visit_->add_poll_fds(fds);
  if (channel_ && channel_->fd() >= 0) fds.push_back({channel_->fd(), channel_->wanted(), 0});
}

void GroupRendezvous::handle(const std::vector<pollfd>& fds) {
  feed(events::TurnBegins{});
  obey_authority();
  handle_signpost(fds);
  read_replies(fds);
  search_.handle(fds);
  take_search_results();
  if (coordinator_) handle_coordinator(fds);
  store_.handle(fds);
  if (channel_) handle_channel();
  feed(events::TurnEnds{});
  if (node_.seeks()) ask_authority();
}

std::optional<Clock::time_point> GroupRendezvous::deadline() const {
  const Sight seen = sight();
  auto next = earlier(node_.deadline(seen), search_.deadline());
  next = earlier(next, signpost_.deadline());
  next = earlier(next, authority_->deadline());
  if (leads_) next = earlier(next, leads_->deadline());
  if (node_.watches_endpoints(seen)) next = earlier(next, watch_.deadline());
  if (visit_) next = earlier(next, earlier(visit_->deadline(), next_visit_));
  if (coordinator_) next = earlier(next, coordinator_->deadline());
  return next;
}

// First of all: a host that has lost its place stops its workers before it does anything else.
void GroupRendezvous::obey_authority() {
  authority_->handle({});
  if (!coordinator_) return;
  if (const std::string why = authority_->deposed(); !why.empty()) {
    coordinator_->dismiss("this node's host has stepped down: " + why);
    return step_down(why);
  }
  if (const auto epoch = authority_->take_epoch()) coordinator_->grant_epoch(*epoch);
  tell_note(authority_->take_note());
}

void GroupRendezvous::handle_signpost(const std::vector<pollfd>& fds) {
  const Sight seen = sight();
  signpost_.say(node_.status(seen), node_.holder(seen));
  signpost_.handle(fds);
  tell_note(signpost_.take_note());
  for (const Status& heard : signpost_.take_heard()) feed(events::Called{heard});
}

void GroupRendezvous::read_replies(const std::vector<pollfd>& fds) {
  visit_endpoints();
  if (node_.watches_endpoints(sight())) watch_.handle(fds);
  if (watch_.take_change()) feed(events::EndpointsChanged{});
  if (leads_) leads_->handle(fds);
  feed(events::RepliesRead{});
}

void GroupRendezvous::visit_endpoints() {
  const Sight seen = sight();
  const auto places = node_.places_to_visit(seen);
  if (!places) return visit_.reset();
  const NodeState& state = node_.state();
  const bool hosts = state.hosting.active && state.stage == GroupStage::kMember;
  if (visit_) {
    visit_->handle({});
    for (const auto& finding : visit_->findings()) {
      if (hosts && finding.found == Inquiry::Found::kAnswer) coordinator_->hear(finding.status);
    }
  }
  if (seen.now < next_visit_) return;
  next_visit_ = seen.now + kVisit;
  visit_.emplace(*places, hosts ? coordinator_->status() : node_.status(seen),
                 node_.settings().token, state.host.patience);
}

void GroupRendezvous::take_search_results() {
  if (node_.state().stage != GroupStage::kSearching) return;
  if (auto listeners = search_.take_listeners(); !listeners.empty()) {
    watch_.set(search_.endpoints());
    watch_.take_change();
    signpost_.listen(listeners);
    return feed(events::Listening{});
  }
  tell_note(search_.take_note());
  if (search_.exhausted()) return feed(events::Unreachable{});
  if (!node_.may_greet(sight())) return;
  if (auto channel = search_.take_channel()) {
    channel_ = std::move(channel);
    feed(events::Opened{channel_->local_address()});
  }
}

void GroupRendezvous::handle_coordinator(const std::vector<pollfd>& fds) {
  coordinator_->handle(fds);
  authority_->request_epoch(coordinator_->awaits_epoch().value_or(std::vector<Hello>{}));
  tell_note(coordinator_->take_note());
  if (!coordinator_->has_lost_mandate()) return;
  // A round that others have accepted is its own, too.
  if (channel_ && node_.state().round.last) handle_channel();
  step_down("too few nodes of the last round follow this host");
}

void GroupRendezvous::handle_channel() {
  channel_->handle();
  while (channel_ && node_.state().stage != GroupStage::kOver) {
    const auto message = channel_->take();
    if (!message) break;
    feed(events::Received{*message});
  }
  if (channel_ && channel_->state() == ControlChannel::State::kClosed &&
      node_.state().stage != GroupStage::kOver)
    feed(events::Closed{channel_->problem(), channel_->peer_is_gone()});
}

void GroupRendezvous::ask_authority() {
  const auto now = Clock::now();
  std::vector<Hello> held;
  for (const Follower& follower : signpost_.followers()) held.push_back(follower.hello);
  std::vector<Inquiry::Finding> visited;
  if (visit_) visited = visit_->findings();
  const auto step = authority_->next(node_.view(now, held, visited));
  tell_note(authority_->take_note());
  feed(events::Advised{step, authority_->despair()});
}

// ---- sockets -----------------------------------------------------------------------------------

void GroupRendezvous::open_port(const std::string& address) {
  const int fd = listen_for_peers(address);
  if (fd < 0) return;
  signpost_.listen({fd});
  feed(events::PortOpened{port_of(fd)});
}

void GroupRendezvous::say_hello() {
  Hello hello = node_.hello();
  hello.pid = ::getpid();
  channel_->send(hello);
}

void GroupRendezvous::host(actions::Host action) {
  const GroupSettings& settings = node_.settings();
  MembershipRules rules = settings.rules;
  rules.host_id = node_.state().id;
  rules.epochs_are_granted = authority_->grants_epochs();
  Coordinator::StoreClients store_clients;
  if (settings.shares_port()) store_clients = [this](int fd) { store_.adopt(fd); };
  authority_->hand_down(action.history);
  coordinator_ =
      std::make_unique<Coordinator>(rules, std::move(action.history), settings.token,
                                    signpost_.take_listeners(), std::move(store_clients));
  coordinator_->set_place(action.place);
  for (Follower& follower : signpost_.take_followers()) coordinator_->adopt(std::move(follower));
  next_visit_ = Clock::now();
}

void GroupRendezvous::step_down(const std::string& why) {
  events::Deposed event;  // GCC 12 falsely warns about a braced one
  event.why = why;
  event.later_epoch = coordinator_->later_epoch();
  if (const auto& later = coordinator_->superseded_by())
    event.successor = {later->address, later->port};
  const auto listeners = coordinator_->take_listeners();
  if (!listeners.empty()) event.port = port_of(listeners.front());
  signpost_.listen(listeners);
  coordinator_.reset();
  visit_.reset();
  feed(event);
}

void GroupRendezvous::claim_endpoints() {
  events::Claimed claimed;
  const auto claim = [&](const std::string& host, int port) {
    const auto address = parse_address(host, port);
    const int fd = address ? listen_on(*address) : -1;
    claimed.taken = claimed.taken || (fd < 0 && address && errno == EADDRINUSE);
    if (fd >= 0) coordinator_->also_listen(fd);
    return fd >= 0;
  };
  for (const Endpoint& one : node_.settings().endpoints())
    claimed.listens = claim(one.host, one.port) || claimed.listens;
  // A name may lead elsewhere again: it is still watched.
  for (const ResolvedEndpoint& one : watch_.endpoints()) {
    for (const std::string& address : one.addresses) {
      if (address != one.endpoint.host) claim(address, one.endpoint.port);
    }
  }
  feed(claimed);
}

}  // namespace ddp::launch
