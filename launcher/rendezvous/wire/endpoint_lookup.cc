#include "launcher/rendezvous/wire/endpoint_lookup.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <functional>
#include <sstream>

namespace ddp::launch {
namespace {

// While nothing changes the pauses grow: each lookup of a name is a process.
constexpr std::chrono::milliseconds kLookupPause{500};
constexpr std::chrono::milliseconds kLongestWatchPause{15'000};

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
  fd_ = Descriptor(ends[0]);
  lacks_getent_ = pid_ == 0;
  if (lacks_getent_ && is_localhost(host)) output_ = "127.0.0.1\n::1\n";
  ::fcntl(fd(), F_SETFL, O_NONBLOCK);
}

// The agent's loop reaps the child, like all others.
NameLookup::~NameLookup() {
  if (!done() && pid_ > 0) ::kill(pid_, SIGKILL);
}

void NameLookup::handle() {
  std::array<char, 4096> buffer;
  for (;;) {
    const ssize_t got = ::read(fd(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got > 0) output_.append(buffer.data(), static_cast<std::size_t>(got));
    if (got > 0 && output_.size() < kLongestOutput) continue;
    return fd_.reset();
  }
}

// Each once.
std::vector<std::string> NameLookup::addresses() const {
  std::vector<std::string> addresses;
  std::istringstream lines(output_);
  for (std::string line; std::getline(lines, line);) {
    const std::string address = line.substr(0, line.find_first_of(" \t"));
    const bool known = std::find(addresses.begin(), addresses.end(), address) != addresses.end();
    if (!known && parse_address(address, 0)) addresses.push_back(address);
  }
  return addresses;
}

EndpointLookup::EndpointLookup(const std::vector<Endpoint>& endpoints) : endpoints_(endpoints) {
  for (const Endpoint& one : endpoints_) lookups_.push_back(std::make_unique<NameLookup>(one.host));
}

bool EndpointLookup::done() const {
  return std::all_of(lookups_.begin(), lookups_.end(),
                     [](const auto& lookup) { return lookup->done(); });
}

std::vector<ResolvedEndpoint> EndpointLookup::results() const {
  std::vector<ResolvedEndpoint> results;
  for (std::size_t i = 0; i < endpoints_.size(); ++i) {
    results.push_back({endpoints_[i], lookups_[i]->addresses(), lookups_[i]->lacks_getent()});
    // Debian's /etc/hosts gives a machine's own name an address of the loopback.
    auto& addresses = results.back().addresses;
    if (!is_localhost(endpoints_[i].host))
      std::stable_partition(addresses.begin(), addresses.end(), std::not_fn(is_loopback));
  }
  return results;
}

void EndpointLookup::add_poll_fds(std::vector<pollfd>& fds) const {
  for (const auto& lookup : lookups_) {
    if (!lookup->done()) fds.push_back({lookup->fd(), POLLIN, 0});
  }
}

void EndpointLookup::handle(const std::vector<pollfd>&) {
  for (const auto& lookup : lookups_) {
    if (!lookup->done()) lookup->handle();
  }
}

EndpointWatch::EndpointWatch(std::vector<Endpoint> endpoints)
    : endpoints_(std::move(endpoints)), unknown_since_(endpoints_.size()), pause_(kLookupPause) {}

void EndpointWatch::set(std::vector<ResolvedEndpoint> resolved) {
  for (std::size_t i = 0; i < resolved.size(); ++i) {
    if (!resolved[i].addresses.empty()) unknown_since_[i].reset();
    if (resolved[i].addresses.empty() && !unknown_since_[i]) unknown_since_[i] = Clock::now();
  }
  const bool same = resolved == resolved_;
  pause_ = same ? std::min(2 * pause_, kLongestWatchPause) : kLookupPause;
  changed_ = changed_ || !same;
  resolved_ = std::move(resolved);
  next_ = Clock::now() + pause_;
}

std::string EndpointWatch::unknown() const {
  std::string text;
  for (std::size_t i = 0; i < endpoints_.size(); ++i) {
    if (!unknown_since_[i] || Clock::now() - *unknown_since_[i] >= kUnknown) continue;
    text += (text.empty() ? "" : ", ") + endpoints_[i].host;
  }
  return text;
}

void EndpointWatch::add_poll_fds(std::vector<pollfd>& fds) const {
  if (lookup_) lookup_->add_poll_fds(fds);
}

void EndpointWatch::handle(const std::vector<pollfd>& fds) {
  if (!lookup_ && Clock::now() < next_) return;
  if (!lookup_) lookup_.emplace(endpoints_);
  lookup_->handle(fds);
  if (!lookup_->done()) return;
  set(lookup_->results());
  lookup_.reset();
}

std::optional<Clock::time_point> EndpointWatch::deadline() const {
  return lookup_ ? std::nullopt : std::optional(next_);
}

std::string place_text(const std::string& host, int port) {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

std::string endpoints_text(const std::vector<Endpoint>& endpoints) {
  std::string text;
  for (const Endpoint& one : endpoints)
    text += (text.empty() ? "" : ", ") + place_text(one.host, one.port);
  return text;
}

}  // namespace ddp::launch
