// How an agent becomes a member of the group: it finds the host of the rendezvous or is the host.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "launcher/base/errors.h"
#include "launcher/base/sockets.h"
#include "launcher/rendezvous/group_rendezvous.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

constexpr int kClaims = 50;
constexpr std::chrono::milliseconds kClaimPause{20};

}  // namespace

void GroupRendezvous::join() {
  wants_round_ = true;
  join_is_due_ = false;
  if (stage_ == Stage::Member) return send_join();
  if (stage_ == Stage::Idle) search();
}

void GroupRendezvous::search() {
  stage_ = Stage::Searching;
  search_.begin();
  take_search_results();
}

// The old host first: it may only have been slow.
void GroupRendezvous::follow() {
  stage_ = Stage::Searching;
  std::vector<HostCandidate> candidates;
  if (!host_is_gone_) candidates.push_back(search_.present());
  for (const Successor& one : last_round_->successors)
    candidates.push_back({one.address, one.port, one.node == own_node_});
  search_.follow(std::move(candidates), patience_);
  take_search_results();
}

void GroupRendezvous::take_search_results() {
  if (stage_ != Stage::Searching) return;
  if (search_.take_own_turn()) take_over();
  if (auto listeners = search_.take_listeners(); !listeners.empty()) {
    if (search_.hosts_elsewhere() && settings_.local_addr.empty())
      settings_.local_addr = settings_.host;
    host({}, std::move(listeners));
  }
  if (search_.exhausted())
    return tell_end(lost_text_ + "; no other node could take over the rendezvous");
  if (const std::string note = search_.take_note(); !note.empty()) tell_note(note);
  if (auto channel = search_.take_channel()) {
    channel_ = std::move(channel);
    say_hello();
  }
}

void GroupRendezvous::host(JobHistory history, std::vector<int> listeners) {
  MembershipRules rules = settings_.rules;
  rules.host_id = id_;
  Coordinator::StoreClients store_clients;
  if (settings_.shares_port()) store_clients = [this](int fd) { store_.adopt(fd); };
  coordinator_ = std::make_unique<Coordinator>(rules, std::move(history), settings_.token,
                                               std::move(listeners), std::move(store_clients));
  search_.connect_to_self();
}

void GroupRendezvous::take_over() {
  JobHistory history{.rounds = last_round_->info.restart_count + 1, .ends = last_round_->history};
  for (const Successor& one : last_round_->successors)
    history.order.emplace(std::pair(one.address, one.port), static_cast<int>(history.order.size()));
  history.expected = std::max(static_cast<int>(last_round_->successors.size()),
                              last_round_->info.group_world_size - 1);
  // An old host that is only silent may be at work with the other half of the nodes.
  if (!host_is_gone_) history.quorum = last_round_->info.group_world_size / 2 + 1;
  tell_note("this node hosts the rendezvous from now on");
  std::vector<int> listeners{std::exchange(succession_socket_, -1)};
  claims_left_ = kClaims;
  claim_at_ = Clock::now();
  host(std::move(history), std::move(listeners));
}

// Newcomers know the endpoint only, which may be on this machine. The kernel may have closed the
// old host's connections before its listening socket, so one attempt would not do.
void GroupRendezvous::claim_endpoint() {
  if (claims_left_ == 0 || Clock::now() < claim_at_) return;
  const auto address = parse_address(settings_.host, settings_.port);
  const int fd = address ? listen_on(*address) : -1;
  if (fd >= 0) coordinator_->also_listen(fd);
  claims_left_ = fd < 0 && address && errno == EADDRINUSE ? claims_left_ - 1 : 0;
  claim_at_ = Clock::now() + kClaimPause;
}

// Where the others reach this node.
std::string GroupRendezvous::own_address() const {
  return settings_.local_addr.empty() ? channel_->local_address() : settings_.local_addr;
}

void GroupRendezvous::say_hello() {
  stage_ = Stage::Greeting;
  heard_ = next_beat_ = Clock::now();
  if (succession_socket_ < 0 && !coordinator_) {
    succession_socket_ = listen_for_peers(own_address());
    if (succession_socket_ >= 0) succession_port_ = port_of(succession_socket_);
  }
  channel_->send(Hello{.id = id_,
                       .run_id = settings_.rules.run_id,
                       .min_nodes = settings_.rules.min_nodes,
                       .max_nodes = settings_.rules.max_nodes,
                       .node_rank = settings_.node_rank,
                       .host = settings_.host_name,
                       .address = settings_.local_addr,
                       .pid = ::getpid(),
                       .local_world_size = settings_.local_world_size,
                       .role = settings_.role,
                       .max_restarts = settings_.rules.restarts.max_restarts,
                       .port = succession_port_});
}

void GroupRendezvous::enter(const Welcome& welcome) {
  own_node_ = welcome.node;
  heartbeat_ = welcome.heartbeat;
  patience_ = welcome.patience;
  stage_ = Stage::Member;
  if (wants_round_) send_join();
}

void GroupRendezvous::refused(const std::string& why) {
  const std::string text =
      fmt::format("the rendezvous at {} refused this node: {}", search_.present_text(), why);
  if (!last_round_) throw LaunchError(kExitFailed, text);
  tell_end(text);
}

}  // namespace ddp::launch
