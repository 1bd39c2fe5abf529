// The rendezvous that a job's options ask for.
#pragma once

#include <memory>
#include <string>

#include "launcher/cli/launch_config.h"
#include "launcher/plan/job_plan.h"
#include "launcher/process/signal_mailbox.h"
#include "launcher/rendezvous/group_rendezvous.h"
#include "launcher/rendezvous/local_rendezvous.h"

namespace ddp::launch {

/// One of two; the group has connections to poll.
struct JobRendezvous {
  std::unique_ptr<LocalRendezvous> local;
  std::unique_ptr<GroupRendezvous> group;
  Rendezvous& get() const { return local ? static_cast<Rendezvous&>(*local) : *group; }
};

/// Throws LaunchError (a usage error) for a token file that cannot serve.
JobRendezvous make_rendezvous(const LaunchConfig& config, const JobPlan& plan,
                              const SignalMailbox& signals);

/// For a job on this machine only.
LocalRendezvous local_rendezvous(const LaunchConfig& config, const JobPlan& plan);

/// For --dry-run: as if all nodes were like this one; with c10d as if it were the first.
RendezvousInfo supposed_round(const GroupSettings& group, int local_world_size);

}  // namespace ddp::launch
