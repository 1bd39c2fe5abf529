// ddp-run starts one process per rank, supervises and restarts them, and leaves nothing behind.
#include "launcher/launch.h"
#include "launcher/process/signal_mailbox.h"

int main(int argc, char** argv) {
  // Comes first: from here on no signal can end ddp-run and leave workers behind.
  auto signals = ddp::launch::SignalMailbox::block();
  return ddp::launch::guarded_main(argc, argv, signals);
}
