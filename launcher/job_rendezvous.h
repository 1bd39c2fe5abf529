// Creates the rendezvous that a job's options request.
#pragma once

#include <memory>
#include <string>

#include "launcher/cli/launch_config.h"
#include "launcher/plan/job_plan.h"
#include "launcher/process/signal_mailbox.h"
#include "launcher/rendezvous/group_rendezvous.h"
#include "launcher/rendezvous/local_rendezvous.h"

namespace ddp::launch {

/// Exactly one of the two is set; the group has connections to poll.
struct JobRendezvous {
  std::unique_ptr<LocalRendezvous> local;
  std::unique_ptr<GroupRendezvous> group;
  Rendezvous& get() const { return local ? static_cast<Rendezvous&>(*local) : *group; }
};

/// Throws LaunchError (a usage error) for an unusable token file.
JobRendezvous make_rendezvous(const LaunchConfig& config, const JobPlan& plan,
                              const SignalMailbox& signals);

/// For a job on this machine only.
LocalRendezvous local_rendezvous(const LaunchConfig& config, const JobPlan& plan);

/// For --dry-run: assumes that all nodes are like this one; with c10d, that it is the first.
RendezvousInfo supposed_round(const GroupSettings& group, int local_world_size);

}  // namespace ddp::launch
