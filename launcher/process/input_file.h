// Files that the user names, of any kind: a named pipe may have no writer yet.
#pragma once

#include <cstddef>
#include <string>

#include "launcher/process/signal_mailbox.h"

namespace ddp::launch {

/// What messages say.
struct InputOption {
  std::string name;    // what precedes the file: "--hosts=@"
  std::string remedy;  // "give a file with one host per line"
};

/// Reads at most `most` bytes of a file. Throws LaunchError: with code 2 if it cannot be read; with
/// 128 + N if signal N, which ends jobs, comes before its end does.
std::string read_input_file(const InputOption& option, const std::string& file, std::size_t most,
                            const SignalMailbox& signals);

}  // namespace ddp::launch
