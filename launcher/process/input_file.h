// Reads user-specified files of any kind: a named pipe may have no writer yet.
#pragma once

#include <cstddef>
#include <string>

#include "launcher/process/signal_mailbox.h"

namespace ddp::launch {

/// Texts for messages.
struct InputOption {
  std::string name;     // what precedes the file: "--hosts=@"
  std::string remedy;   // "give a file with one host per line"
  bool secret = false;  // only its owner may be able to read it
};

/// Reads at most `most` bytes of a file. Throws LaunchError: with code 2 if it cannot be read, or
/// if it should be secret and others than its owner, who is this user or root, may read it; with
/// 128 + N if signal N, which ends jobs, comes before its end does.
std::string read_input_file(const InputOption& option, const std::string& file, std::size_t most,
                            const SignalMailbox& signals);

/// Reads the first line of standard input, of at most `most` bytes, and nothing that follows it.
/// Throws likewise, also at end-of-file.
std::string read_token_line(std::size_t most, const SignalMailbox& signals);

}  // namespace ddp::launch
