#include "launcher/rendezvous/static_rendezvous.h"

#include <cstdlib>
#include <string_view>
#include <utility>

namespace ddp::launch {
namespace {

constexpr auto kSeeOffTorchrun = std::chrono::seconds(5);

bool workers_are_identical() {
  const char* value = std::getenv("TORCH_ELASTIC_WORKER_IDENTICAL");
  return value != nullptr && std::string_view(value) == "1";
}

}  // namespace

StaticRendezvous::StaticRendezvous(GroupSettings settings)
    : settings_(std::move(settings)), group_(std::make_unique<GroupRendezvous>(settings_)) {}

StaticRendezvous::~StaticRendezvous() {
  if (torchrun_ && group_) group_->see_off_torchrun(Clock::now() + kSeeOffTorchrun);
}

Rendezvous& StaticRendezvous::present() const {
  return torchrun_ ? static_cast<Rendezvous&>(*torchrun_) : *group_;
}

void StaticRendezvous::add_poll_fds(std::vector<pollfd>& fds) const {
  if (group_) group_->add_poll_fds(fds);
  if (torchrun_) torchrun_->add_poll_fds(fds);
}

void StaticRendezvous::handle(const std::vector<pollfd>& fds) {
  if (group_) group_->handle(fds);
  if (!torchrun_ && group_->found_torchrun()) use_torchruns();
  if (torchrun_) torchrun_->handle(fds);
}

std::optional<Clock::time_point> StaticRendezvous::deadline() const {
  const auto one = group_ ? group_->deadline() : std::nullopt;
  const auto other = torchrun_ ? torchrun_->deadline() : std::nullopt;
  if (one && other) return std::min(*one, *other);
  return one ? one : other;
}

void StaticRendezvous::use_torchruns() {
  TorchrunSettings torchrun;
  torchrun.node = {.node_rank = settings_.node_rank,
                   .nnodes = settings_.rules.max_nodes,
                   .local_world_size = settings_.local_world_size,
                   .role = settings_.role,
                   .run_id = settings_.rules.run_id,
                   .identical = workers_are_identical()};
  torchrun.restarts = settings_.rules.restarts;
  torchrun.master_addr = settings_.host;
  torchrun.master_numeric = group_->host_address();
  torchrun.master_port = settings_.port;
  torchrun.join_timeout = settings_.rules.join_timeout;
  torchrun_ = std::make_unique<TorchrunRendezvous>(std::move(torchrun));
  if (settings_.node_rank == 0) {
    group_->only_serve_store();
  } else {
    group_.reset();
  }
  torchrun_->join();
}

}  // namespace ddp::launch
