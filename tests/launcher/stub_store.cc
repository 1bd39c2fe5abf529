// Stands in for ddp-store: tells each client which store of which process it has reached. It leaves
// lines in the file STUB_STORE_LOG, and STUB_STORE=exit or =die lets it end before it serves.
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "launcher/rendezvous/store_server/socket_handover.h"

namespace {

void log_line(const std::string& line) {
  if (const char* file = std::getenv("STUB_STORE_LOG")) {
    std::ofstream(file, std::ios::app) << line << std::endl;
  }
}

void log_signal(int) { log_line("signal"); }

std::string open_descriptors() {
  std::vector<int> fds;
  DIR* folder = ::opendir("/proc/self/fd");
  while (const dirent* entry = ::readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    if (entry->d_name[0] != '.' && fd != ::dirfd(folder)) fds.push_back(fd);
  }
  ::closedir(folder);
  std::sort(fds.begin(), fds.end());
  std::string text;
  for (const int fd : fds) text.append(1, ' ').append(std::to_string(fd));
  return text;
}

void end_early() {
  const char* how = std::getenv("STUB_STORE");
  if (how && std::string(how) == "exit") std::_Exit(3);
  if (how && std::string(how) == "die") ::raise(SIGKILL);
}

void answer(int listening, int number) {
  const int client = ::accept(listening, nullptr, nullptr);
  if (client < 0) return;
  const std::string line =
      "store " + std::to_string(number) + " of " + std::to_string(::getpid()) + "\n";
  [[maybe_unused]] const auto sent = ::send(client, line.data(), line.size(), MSG_NOSIGNAL);
  ::close(client);
}

}  // namespace

int main() {
  log_line("started with" + open_descriptors());
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCONT})
    ::signal(signal, log_signal);
  int listening = -1;
  for (int number = 0;;) {
    pollfd fds[] = {{0, POLLIN, 0}, {listening, POLLIN, 0}};
    if (::poll(fds, 2, -1) < 0) continue;
    if (fds[0].revents != 0) {
      ::close(listening);
      listening = ddp::launch::receive_socket(0);
      if (listening < 0) return 0;
      end_early();
      ++number;
      ddp::launch::report_served(0);
    } else if (fds[1].revents != 0) {
      answer(listening, number);
    }
  }
}
