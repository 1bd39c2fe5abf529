// trainer: trains minGPT with DistributedDataParallel. What each mode does is in modes.h.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "launcher/worker_contract.h"
#include "trainer/config/trainer_args.h"
#include "trainer/modes.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/error_file.h"

namespace ddp::train {
namespace {

int run(int argc, const char* const* argv) {
  const TrainerArgs args = parse_trainer_args(argc, argv);
  switch (args.mode) {
    case Mode::kTrain:
      return run_train(args);
    case Mode::kGenerate:
      return run_generate(args);
    case Mode::kInspect:
      return run_inspect(args);
    case Mode::kDoctor:
      return run_doctor(args);
    case Mode::kVersion:
      return run_version();
    case Mode::kHelp:
      return std::fputs(args.help_text.c_str(), stdout) < 0 ? launch::kExitFailed
                                                            : launch::kExitDone;
  }
  return launch::kExitFailed;
}

// A mistake in the configuration is the same on every rank: the first rank of a node says it once.
// A failure of the run is one rank's own.
void report(const std::string& message, int exit_code, bool same_on_every_rank) {
  write_error_file(message, exit_code);
  const char* local_rank = std::getenv(launch::kLocalRank);
  const char* error_file = std::getenv(launch::kErrorFile);
  const bool somebody_else_says_it = same_on_every_rank && local_rank != nullptr &&
                                     std::string(local_rank) != "0" && error_file != nullptr &&
                                     *error_file != '\0';
  if (!somebody_else_says_it) std::fprintf(stderr, "error: %s\n", message.c_str());
}

// The first line: what torch appends to its messages is for its own developers. A connection that
// broke off means that another rank went first: its own message, or the launcher's, is the one to
// read.
std::string readable(const std::string& text) {
  const std::string line = text.substr(0, text.find('\n'));
  for (const char* broken :
       {"Connection reset by peer", "Connection closed by peer", "Broken pipe"}) {
    if (line.find(broken) != std::string::npos) {
      return std::string("lost the connection to another rank (") + broken +
             "), which has ended; it failed first";
    }
  }
  return line;
}

int guarded_main(int argc, const char* const* argv) {
  try {
    return run(argc, argv);
  } catch (const UserError& error) {
    report(error.what(), launch::kExitUsage, true);
    return launch::kExitUsage;
  } catch (const RunError& error) {
    report(error.what(), launch::kExitFailed, false);
  } catch (const std::exception& error) {
    const char* rank = std::getenv(launch::kRank);
    report((rank != nullptr ? "rank " + std::string(rank) + ": " : "") + readable(error.what()),
           launch::kExitFailed, false);
  }
  return launch::kExitFailed;
}

}  // namespace
}  // namespace ddp::train

int main(int argc, char** argv) { return ddp::train::guarded_main(argc, argv); }
