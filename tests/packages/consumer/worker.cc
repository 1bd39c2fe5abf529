// Says its rank; in the first round it asks to be restarted, in the second it is done.
#include <ddp_run/worker_contract.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>

int main() {
  using namespace ddp::launch;
  const char* restarts = std::getenv(kRestartCount);
  std::printf("rank %s of %s\n", std::getenv(kRank), std::getenv(kWorldSize));
  return restarts != nullptr && std::strcmp(restarts, "0") == 0 ? kExitFailed : kExitDone;
}
