#include "launcher/rendezvous/local_rendezvous.h"

#include <utility>

#include "launcher/base/random_hex.h"

namespace ddp::launch {

LocalRendezvous::LocalRendezvous(std::string master_addr, int master_port, bool agent_store,
                                 RestartRules rules)
    : master_addr_(std::move(master_addr)),
      master_port_(master_port),
      agent_store_(agent_store),
      rules_(std::move(rules)),
      job_(random_sixteen_digits()) {}

void LocalRendezvous::join() {
  news_.push_back({.kind = JobNews::Kind::kStart, .round = next_round()});
}

RendezvousInfo LocalRendezvous::next_round() {
  RendezvousInfo info;
  info.epoch = rounds_;
  info.job = job_;
  info.restart_count = rounds_++;
  info.master_addr = master_addr_;
  info.agent_store = agent_store_;
  // Choose a free port while still holding the old one, so that they differ.
  if (agent_store_) {
    if (!listening_ || master_port_ == 0) {
      listening_ = std::make_unique<ListeningSocket>(master_addr_, master_port_);
    } else {
      listening_->refuse_waiting();  // no process of the last round is left
    }
    info.master_port = listening_->port();
    info.store_socket = listening_->fd();
  } else {
    if (!held_ || master_port_ == 0) held_ = PortReservation(master_port_);
    info.master_port = held_->port();
  }
  return info;
}

void LocalRendezvous::report_end(NodeEnd end) {
  news_.push_back(judge_own_end(rules_, tally_, std::move(end.failures)));
}

std::optional<JobNews> LocalRendezvous::take_news() { return take_oldest(news_); }

}  // namespace ddp::launch
