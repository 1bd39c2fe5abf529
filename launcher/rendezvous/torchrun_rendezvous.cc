#include "launcher/rendezvous/torchrun_rendezvous.h"

#include <fmt/format.h>

#include <utility>

#include "launcher/base/errors.h"
#include "launcher/base/text.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
TorchrunRendezvous::TorchrunRendezvous(TorchrunSettings settings)
    : settings_(std::move(settings)),
      store_(settings_.master_numeric, settings_.master_port),
      exchange_(settings_.node) {
  news_.push_back(make_news(JobNews::Kind::Note,
                            "the other nodes run torchrun: each node restarts its own workers, "
                            "and none stops when another fails"));
}

void TorchrunRendezvous::join() {
  joining_until_ = Clock::now() + settings_.join_timeout;
  if (rounds_ > 0) exchange_.ask_again();
  pass_on();
}

void TorchrunRendezvous::report_end(NodeEnd end) {
  if (end.failures.empty() && !end.stopped && !leaving_) {
    exchange_.enter_exit_barrier();
    barrier_until_ = Clock::now() + settings_.exit_timeout;
    pass_on();
    return check_exit_barrier();
  }
  JobNews news = judge_own_end(settings_.restarts, history_, std::move(end.failures));
  if (leaving_) {
    news.kind = JobNews::Kind::End;
    news.text.clear();
  }
  news_.push_back(std::move(news));
}

std::optional<JobNews> TorchrunRendezvous::take_news() { return take_oldest(news_); }

void TorchrunRendezvous::handle(const std::vector<pollfd>& fds) {
  store_.handle(fds);
  pass_on();
  if (joining_until_) check_joining();
  if (barrier_until_) check_exit_barrier();
}

// What is due to the store, and what it has answered.
void TorchrunRendezvous::pass_on() {
  for (Request& request : exchange_.take_requests()) store_.ask(std::move(request));
  while (const auto answer = store_.take()) {
    exchange_.hear(*answer);
    for (Request& request : exchange_.take_requests()) store_.ask(std::move(request));
  }
}

void TorchrunRendezvous::check_joining() {
  const std::string where = fmt::format("{}:{}", settings_.master_addr, settings_.master_port);
  std::string why = exchange_.problem();
  if (exchange_.ranks()) return start_round();
  if (why.empty() && store_.state() == TcpStoreClient::State::Lost) why = store_.problem();
  if (why.empty() && Clock::now() >= *joining_until_) {
    why = fmt::format("the ranks of {} nodes were not known within {}; is each of them running?",
                      settings_.node.nnodes, seconds_text(settings_.join_timeout));
  }
  if (why.empty()) return;
  throw LaunchError(kExitFailed, fmt::format("torchrun's rendezvous at {}: {}", where, why));
}

void TorchrunRendezvous::start_round() {
  joining_until_.reset();
  const TorchrunRanks& ranks = *exchange_.ranks();
  RendezvousInfo round;
  round.restart_count = rounds_++;
  round.group_rank = settings_.node.node_rank;
  round.group_world_size = settings_.node.nnodes;
  round.first_rank = ranks.rank_offset;
  round.world_size = ranks.world_size;
  round.first_role_rank = ranks.role_rank_offset;
  round.role_world_size = ranks.role_world_size;
  round.master_addr = settings_.master_addr;
  round.master_port = settings_.master_port;
  round.agent_store = true;
  JobNews news = make_news(JobNews::Kind::Start, "");
  news.round = std::move(round);
  news_.push_back(std::move(news));
}

// Like torchrun, this node has succeeded whatever becomes of the others now.
void TorchrunRendezvous::check_exit_barrier() {
  std::string why;
  if (store_.state() == TcpStoreClient::State::Lost) {
    why = fmt::format("node 0 has ended before all nodes had: {}", store_.problem());
  } else if (Clock::now() >= *barrier_until_) {
    why = fmt::format("not all nodes have ended within {}", seconds_text(settings_.exit_timeout));
  } else if (!exchange_.all_ended()) {
    return;
  }
  barrier_until_.reset();
  if (!why.empty()) news_.push_back(make_news(JobNews::Kind::Note, why));
  news_.push_back(make_news(JobNews::Kind::End, ""));
}

std::optional<Clock::time_point> TorchrunRendezvous::deadline() const {
  auto next = store_.deadline();
  for (const auto& time : {joining_until_, barrier_until_}) {
    if (time && (!next || *time < *next)) next = time;
  }
  return next;
}

}  // namespace ddp::launch
