#include "tests/launcher/rendezvous/simulated_nodes.h"

#include <fmt/format.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "launcher/base/system/sockets.h"
#include "launcher/rendezvous/wire/session.h"

namespace ddp::test {
namespace {

using namespace launch;

constexpr auto kBound = std::chrono::minutes(2);
constexpr auto kHeartbeat = std::chrono::seconds(5);
constexpr int kConnectedAtOnce = 64;
constexpr std::size_t kUniqueIdSize = 128;  // as NCCL's

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

std::uint64_t bytes_of(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (fd < 0 || ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  return info.tcpi_bytes_received + info.tcpi_bytes_acked;
}

// Which worker, or none, of which node an event is for.
std::size_t key_of(int node, int worker) {
  return (static_cast<std::size_t>(node) << 16U) | static_cast<std::size_t>(worker + 1);
}

Request request(QueryType type, const std::string& key) { return {type, {"/" + key}, {}, 0}; }

}  // namespace

SimulatedNodes::SimulatedNodes(int workers, const SimulatedHost& host)
    : workers_(workers),
      host_(&host),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      next_beat_(Clock::now() + kHeartbeat) {}

SimulatedNodes::~SimulatedNodes() { ::close(epoll_); }

// ---- what happens to the job ------------------------------------------------------------------

void SimulatedNodes::start(int more) {
  for (int i = 0; i < more; ++i) {
    nodes_.push_back(std::make_unique<Node>());
    Node& node = *nodes_.back();
    node.number = numbers_++;
    node.succession_port = 1 + node.number % 65'000;
    connect(node);
    if (i % kConnectedAtOnce == 0) serve_some(0);  // an agent speaks as soon as it is connected
  }
  wait_for_round();
}

void SimulatedNodes::leave(int fewer) {
  for (int i = 0; i < fewer; ++i) {
    // Every second one of the later half, so that those that stay move up.
    Node& node = *nodes_.at(nodes_.size() - 1 - static_cast<std::size_t>(i));
    stop_workers(node);
    closed_.control += bytes_of(node.channel->fd());
    in_round_ -= node.round ? 1 : 0;
    nodes_.erase(nodes_.end() - 1 - i);
  }
  wait_for_round();
}

void SimulatedNodes::fail_one() {
  Node& node = *nodes_[nodes_.size() / 2];
  ProcessFailure failure{.rank = node.round->info.first_rank, .pid = 1, .exit = {1, 0}};
  failure.last_stderr = std::string(2000, 'x');
  node.channel->send(Failed{failure});
  stop_workers(node);
  node.channel->send(Ended{{failure}, true, false});
  node.round.reset();
  --in_round_;
  wait_for_round();
}

void SimulatedNodes::fail_all() {
  failing_ = true;  // on their own, not because of a request to stop
  for (const auto& node : nodes_) {
    std::vector<ProcessFailure> failures;
    for (int i = 0; i < std::max(1, workers_); ++i) {
      ProcessFailure failure{.local_rank = i, .pid = 1, .exit = {1, 0}};
      failure.rank = node->round->info.first_rank + i;
      failures.push_back(failure);
    }
    node->channel->send(Failed{failures.front()});
    for (ProcessFailure& failure : failures)
      failure.last_stderr = failure.message = std::string(4'000, 'x');
    stop_workers(*node);
    node->channel->send(Ended{failures, false, false});
    node->round.reset();
    --in_round_;
    serve_some(0);
  }
  failing_ = false;
  wait_for_round();
}

JobHistory SimulatedNodes::history() const {
  const Round& round = *nodes_.front()->round;
  JobHistory history{.rounds = round.info.restart_count + 1, .tally = round.tally};
  for (const Successor& one : round.successors)
    history.order.emplace(one.member, static_cast<int>(history.order.size()));
  history.expected = count();
  history.epoch = round.info.epoch;
  history.nodes = count();
  return history;
}

void SimulatedNodes::move_to(const SimulatedHost& host) {
  for (const auto& node : nodes_) stop_workers(*node);
  closed_ = traffic();  // the old connections cannot be asked later
  host_ = &host;
  moving_ = true;
  wait_for_round();
  moving_ = false;
}

void SimulatedNodes::idle(int seconds) {
  const auto until = Clock::now() + std::chrono::seconds(seconds);
  wait_until("time", [&] { return Clock::now() >= until; });
}

void SimulatedNodes::end() {
  for (const auto& node : nodes_) stop_workers(*node);
  const Traffic before = traffic();  // the host's last words come with the end of the connection
  for (const auto& node : nodes_) node->channel->send(Ended{});
  wait_until("end of the job", [this] { return over_ == count(); });
  nodes_.clear();
  closed_ = before;
}

// ---- agents -----------------------------------------------------------------------------------

void SimulatedNodes::connect(Node& node) {
  const int fd = begin_connect(*parse_address("127.0.0.1", host_->port()));
  require(fd >= 0, "no descriptor is left for a node; raise ulimit -n");
  node.channel = std::make_unique<ControlChannel>(fd, ControlChannel::Side::kAgent, "");
  node.watched = 0;
  node.channel->send(Hello{.id = std::to_string(node.number),
                           .run_id = "simulation",
                           .min_nodes = host_->min_nodes(),
                           .max_nodes = host_->max_nodes(),
                           .host = fmt::format("node{:05}", node.number),
                           .pid = node.number + 1,
                           .local_world_size = std::max(1, workers_),
                           .role = "default",
                           .max_restarts = 3,
                           .agreed = agreed_values(host_->rules()),
                           .port = node.succession_port,
                           .member = std::to_string(node.number),
                           .epoch = node.proposed ? node.proposed->info.epoch : -1});
  watch(key_of(node.number, -1), fd, node.channel->wanted(), node.watched);
}

void SimulatedNodes::watch(std::size_t key, int fd, short wanted, short& watched) {
  if (wanted == watched) return;
  epoll_event event{};
  event.events =
      ((wanted & POLLIN) != 0 ? EPOLLIN : 0U) | ((wanted & POLLOUT) != 0 ? EPOLLOUT : 0U);
  event.data.u64 = key;
  ::epoll_ctl(epoll_, watched == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event);
  watched = wanted;
}

void SimulatedNodes::serve(Node& node) {
  node.channel->handle();
  while (const auto message = node.channel->take()) receive(node, *message);
  if (node.channel->state() == ControlChannel::State::kClosed) {
    if (node.over) return;
    require(moving_,
            fmt::format("node {} lost the host: {}", node.number, node.channel->problem()));
    in_round_ -= node.round ? 1 : 0;
    node.round.reset();
    stop_workers(node);
    return connect(node);
  }
  watch(key_of(node.number, -1), node.channel->fd(), node.channel->wanted(), node.watched);
}

void SimulatedNodes::receive(Node& node, const ControlMessage& message) {
  node.received += Session::counts(message) ? 1 : 0;
  if (std::get_if<Welcome>(&message)) node.channel->send(Join{host_->store_port()});
  if (const auto* m = std::get_if<Refused>(&message)) require(false, "refused: " + m->why);
  if (const auto* m = std::get_if<Round>(&message)) {
    node.proposed = *m;
    node.channel->send(Accepted{m->info.epoch});
  }
  if (std::get_if<Go>(&message)) {
    node.round = node.proposed;
    ++in_round_;
  }
  if (std::get_if<Stop>(&message) && node.round && !failing_) {
    stop_workers(node);
    node.channel->send(Ended{.stopped = true});
    node.round.reset();
    --in_round_;
  }
  if (const auto* m = std::get_if<Verdict>(&message)) {
    if (!m->over) return node.channel->send(Join{host_->store_port()});
    node.over = true;
    ++over_;
    node.channel->finish_sending();
  }
}

void SimulatedNodes::beat() {
  if (Clock::now() < next_beat_) return;
  next_beat_ = Clock::now() + kHeartbeat;
  for (const auto& node : nodes_) node->channel->send(Alive{node->received});
}

// ---- workers ----------------------------------------------------------------------------------

void SimulatedNodes::run_workers() {
  ready_workers_ = 0;
  for (const auto& node : nodes_) {
    node->workers.resize(static_cast<std::size_t>(workers_));
    for (int i = 0; i < workers_; ++i)
      start_worker(*node, node->workers[static_cast<std::size_t>(i)], key_of(node->number, i));
  }
  wait_until("workers in the store", [this] { return ready_workers_ == workers_ * count(); });
}

void SimulatedNodes::start_worker(Node& node, Worker& worker, std::size_t key) {
  const std::string prefix = fmt::format("round{}/", node.round->info.restart_count);
  const bool first = node.round->info.first_rank == 0 && &worker == &node.workers.front();
  worker = {std::make_unique<TcpStoreClient>("127.0.0.1", host_->store_port()), -1, 0};
  if (first) {
    worker.client->ask(
        {QueryType::kSet, {"/" + prefix + "id"}, {std::string(kUniqueIdSize, 'i')}, 0});
  }
  worker.client->ask(request(QueryType::kWait, prefix + "id"));
  worker.client->ask(request(QueryType::kGet, prefix + "id"));
  worker.client->ask({QueryType::kAdd, {"/" + prefix + "here"}, {}, 1});
  std::vector<pollfd> own;
  worker.client->add_poll_fds(own);
  require(!own.empty(), "no descriptor is left for a worker; raise ulimit -n");
  worker.fd = own[0].fd;
  short watched = 0;
  watch(key, worker.fd, POLLIN | POLLOUT, watched);
}

void SimulatedNodes::serve(Node& node, Worker& worker) {
  const std::string prefix = fmt::format("round{}/", node.round->info.restart_count);
  worker.client->handle({{worker.fd, 0, POLLIN}});
  require(worker.client->problem().empty(), "a worker lost the store: " + worker.client->problem());
  short watched = POLLIN | POLLOUT;
  const int index = static_cast<int>(&worker - node.workers.data());
  watch(key_of(node.number, index), worker.fd, POLLIN, watched);
  while (const auto answer = worker.client->take()) {
    ++worker.answers;
    if (worker.answers == 3) {
      if (answer->number == node.round->info.world_size)
        worker.client->ask({QueryType::kSet, {"/" + prefix + "all"}, {"1"}, 0});
      worker.client->ask(request(QueryType::kWait, prefix + "all"));
    }
    ready_workers_ += worker.answers == 4 ? 1 : 0;
  }
}

void SimulatedNodes::stop_workers(Node& node) {
  for (const Worker& worker : node.workers) closed_.store += bytes_of(worker.fd);
  node.workers.clear();
}

// ---- the loop, and what must be ---------------------------------------------------------------

void SimulatedNodes::wait_until(const char* what, const std::function<bool()>& done) {
  const auto limit = Clock::now() + kBound;
  while (!done()) {
    require(Clock::now() < limit, fmt::format("no {} within two minutes", what));
    serve_some(100);
    beat();
  }
}

void SimulatedNodes::serve_some(int wait_ms) {
  std::array<epoll_event, 256> events;
  const int got = ::epoll_wait(epoll_, events.data(), events.size(), wait_ms);
  for (int i = 0; i < got; ++i) {
    const auto key = events[static_cast<std::size_t>(i)].data.u64;
    const auto number = static_cast<int>(key >> 16U);
    const auto worker = static_cast<std::size_t>(key & 0xffffU);
    const auto found =
        std::lower_bound(nodes_.begin(), nodes_.end(), number,
                         [](const auto& node, int wanted) { return node->number < wanted; });
    if (found == nodes_.end() || (*found)->number != number) continue;
    if (worker == 0) serve(**found);
    if (worker > 0 && worker <= (*found)->workers.size())
      serve(**found, (*found)->workers[worker - 1]);
  }
}

// Nodes that come or go one after the other may take more than one round.
void SimulatedNodes::wait_for_round() {
  int now = -1;
  const auto is_common = [&](const auto& node) {
    const RendezvousInfo& info = node->round->info;
    return info.restart_count == now && info.group_world_size == count();
  };
  wait_until("round", [&] {
    if (in_round_ < count()) return false;
    now = nodes_.front()->round->info.restart_count;
    return now > restarts_ && std::all_of(nodes_.begin(), nodes_.end(), is_common);
  });
  restarts_ = now;
  check_round();
}

void SimulatedNodes::check_round() {
  std::vector<const Node*> by_rank(nodes_.size());
  for (const auto& node : nodes_) {
    const RendezvousInfo& info = node->round->info;
    require(info.group_world_size == count(), "a wrong number of nodes");
    require(info.world_size == count() * std::max(1, workers_), "a wrong world size");
    require(info.master_port == host_->store_port(), "a wrong port of the store");
    by_rank[static_cast<std::size_t>(info.group_rank)] = node.get();
  }
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    require(by_rank[rank] != nullptr, fmt::format("no node has rank {}", rank));
    require(by_rank[rank]->round->info.first_rank == static_cast<int>(rank) * std::max(1, workers_),
            "a wrong first rank");
  }
  check_order(by_rank);
}

// Those that stay keep their order, and newcomers are behind them.
void SimulatedNodes::check_order(const std::vector<const Node*>& by_rank) {
  int last = -1;
  bool newcomers = false;
  for (const Node* node : by_rank) {
    newcomers = newcomers || node->rank < 0;
    require(moving_ || (newcomers ? node->rank < 0 : node->rank > last),
            "the nodes that stayed have not kept their order");
    last = node->rank;
  }
  for (const auto& node : nodes_) node->rank = node->round->info.group_rank;
}

Traffic SimulatedNodes::traffic() const {
  Traffic all = closed_;
  for (const auto& node : nodes_) {
    all.control += bytes_of(node->channel->fd());
    for (const Worker& worker : node->workers) all.store += bytes_of(worker.fd);
  }
  return all;
}

}  // namespace ddp::test
