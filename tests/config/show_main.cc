// The configuration half of trainer alone, for the conformance test: --cfg needs no LibTorch.
#include <cstdio>

#include "trainer/config/trainer_args.h"
#include "trainer/runtime/error.h"

int main(int argc, char** argv) {
  try {
    const ddp::train::TrainerArgs args = ddp::train::parse_trainer_args(argc, argv);
    const std::string text =
        args.mode == ddp::train::Mode::kShow ? ddp::train::show_text(args) : args.help_text;
    return std::fputs(text.c_str(), stdout) < 0 ? 1 : 0;
  } catch (const ddp::train::UserError& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 2;
  }
}
