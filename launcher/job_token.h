// The secret by which the nodes of a job authenticate each other.
#pragma once

#include <string>

#include "launcher/cli/launch_config.h"
#include "launcher/process/signal_mailbox.h"

namespace ddp::launch {

struct JobToken {
  std::string secret{};  // empty: none
  std::string remedy{};  // without a secret: what the user can do
};

/// Reads --rdzv-token-file: a file; "-", the first line of standard input; or "auto", a file in the
/// user's home folder. Without the option a job that a scheduler started uses "auto" if the nodes
/// share that folder. Throws LaunchError, also for a file that others can read.
JobToken job_token(const LaunchConfig& config, const SignalMailbox& signals);

}  // namespace ddp::launch
