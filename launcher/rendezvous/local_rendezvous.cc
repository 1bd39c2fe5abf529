#include "launcher/rendezvous/local_rendezvous.h"

#include <utility>

#include "launcher/base/random_hex.h"
#include "launcher/base/system/sockets.h"
#include "launcher/rendezvous/wire/round_port.h"

namespace ddp::launch {

LocalRendezvous::LocalRendezvous(std::string master_addr, int master_port, bool agent_store,
                                 RestartRules rules)
    : master_addr_(std::move(master_addr)),
      master_port_(master_port),
      agent_store_(agent_store),
      rules_(std::move(rules)),
      job_(random_hex()) {}

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
  if (port_.get() < 0 || master_port_ == 0) {
    port_ = agent_store_ ? listen_for_workers(master_addr_, master_port_) : hold_port(master_port_);
  } else if (agent_store_) {
    refuse_waiting(port_.get());  // no process of the last round is left
  }
  info.master_port = port_of(port_.get());
  if (agent_store_) info.store_socket = port_.get();
  return info;
}

void LocalRendezvous::report_end(NodeEnd end) {
  news_.push_back(judge_own_end(rules_, tally_, std::move(end.failures)));
}

std::optional<JobNews> LocalRendezvous::take_news() { return take_oldest(news_); }

}  // namespace ddp::launch
