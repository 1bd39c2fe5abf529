// trainer's own mode `tokenize`, with its command line and exit codes.
#include <cstdio>

#include "trainer/app/modes.h"
#include "trainer/runtime/error.h"

int main(int argc, char** argv) {
  using namespace ddp::train;
  try {
    const TrainerArgs args = parse_trainer_args(argc, argv);
    if (args.mode == Mode::kTokenize) return run_tokenize(args);
    std::fputs(args.help_text.c_str(), stdout);
    return 0;
  } catch (const UserError& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 2;
  } catch (const RunError& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
