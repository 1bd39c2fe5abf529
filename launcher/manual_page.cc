// Prints the manual page ddp-run(1). Run by the build; not installed.
#include <cstdio>
#include <string>

#include "launcher/cli/option_help.h"

int main() {
  const std::string page = ddp::launch::man_page();
  const bool written = std::fwrite(page.data(), 1, page.size(), stdout) == page.size();
  return written && std::fflush(stdout) == 0 ? 0 : 1;
}
