#include "launcher/rendezvous/wire/name_lookup.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <sstream>

#include "launcher/base/system/descriptors.h"
#include "launcher/base/system/sockets.h"

namespace ddp::launch {
namespace {

constexpr std::size_t kLongestOutput = 64 << 10;

// The child gets default signals and an empty mask; 0: it cannot be started.
pid_t spawn_getent(const std::string& host, int output) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  sigset_t none, all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  const std::array<const char*, 4> arguments{"getent", "ahosts", host.c_str(), nullptr};
  pid_t pid = 0;
  const int error = ::posix_spawnp(&pid, "getent", &files, &attributes,
                                   const_cast<char* const*>(arguments.data()), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&files);
  return error == 0 ? pid : 0;
}

}  // namespace

NameLookup::NameLookup(const std::string& host) {
  if (parse_address(host, 0)) {
    output_ = host + "\n";
    return;
  }
  int ends[2];
  // A name that begins with a dash would be an option.
  if (host.empty() || host.front() == '-' || ::pipe2(ends, O_CLOEXEC) != 0) return;
  pid_ = spawn_getent(host, ends[1]);
  ::close(ends[1]);
  fd_ = ends[0];
  lacks_getent_ = pid_ == 0;
  if (lacks_getent_ && is_localhost(host)) output_ = "127.0.0.1\n::1\n";
  ::fcntl(fd_, F_SETFL, O_NONBLOCK);
}

// The agent's loop reaps the child, like all others.
NameLookup::~NameLookup() {
  if (fd_ < 0) return;
  ::close(fd_);
  if (pid_ > 0) ::kill(pid_, SIGKILL);
}

void NameLookup::handle() {
  std::array<char, 4096> buffer;
  for (;;) {
    const ssize_t got = ::read(fd_, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got > 0) output_.append(buffer.data(), static_cast<std::size_t>(got));
    if (got > 0 && output_.size() < kLongestOutput) continue;
    close_descriptor(fd_);
    return;
  }
}

std::vector<std::string> NameLookup::addresses() const { return addresses_in(output_); }

std::vector<std::string> addresses_in(const std::string& output) {
  std::vector<std::string> addresses;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    const std::string address = line.substr(0, line.find_first_of(" \t"));
    const bool known = std::find(addresses.begin(), addresses.end(), address) != addresses.end();
    if (!known && parse_address(address, 0)) addresses.push_back(address);
  }
  return addresses;
}

}  // namespace ddp::launch
