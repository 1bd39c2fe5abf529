// A worker that does what its arguments say, one after the other: [@RANK][#ROUND]VERB[=VALUE]. With
// @ or # an action is skipped by other ranks or in other rounds. It waits for events only, never
// for time.
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <string>

#include "launcher/worker_contract.h"

namespace {

int g_trap_code = 0;

std::string env(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "(unset)";
}

void print(const std::string& text) {
  const std::string line = text + "\n";
  [[maybe_unused]] const auto written = ::write(1, line.data(), line.size());
}

void write_all(int fd, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t written = ::write(fd, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) std::abort();
    done += static_cast<std::size_t>(written);
  }
}

// Backslash n, r and 0 stand for the characters.
std::string unescaped(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char next = text[i] == '\\' && i + 1 < text.size() ? text[i + 1] : ' ';
    const bool known = next == 'n' || next == 'r' || next == '0';
    out += !known ? text[i] : next == 'n' ? '\n' : next == 'r' ? '\r' : '\0';
    if (known) ++i;
  }
  return out;
}

// Uses that much CPU time, at the lowest priority.
void work_for(int milliseconds) {
  ::setpriority(PRIO_PROCESS, 0, 19);
  timespec spent{};
  do {
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
  } while (spent.tv_sec * 1000 + spent.tv_nsec / 1'000'000 < milliseconds);
}

void write_raw(int fd, const std::string& text) { write_all(fd, unescaped(text)); }

// TIMES:TEXT to stdout, in writes of about 64 KiB.
void write_often(const std::string& value) {
  const auto colon = value.find(':');
  const std::string text = unescaped(value.substr(colon + 1));
  std::string buffer;
  for (long times = std::stol(value); times > 0; --times) {
    buffer += text;
    if (buffer.size() < (64 << 10) && times > 1) continue;
    write_all(1, buffer);
    buffer.clear();
  }
}

[[noreturn]] void write_for_ever(int fd) {
  std::string lines;
  while (lines.size() < (64 << 10)) lines += "y\n";
  for (;;) write_all(fd, lines);
}

// Each line in three writes, so that a copy that is not careful tears them.
void print_lines(int count) {
  for (int i = 0; i < count; ++i) {
    for (const std::string& part :
         {std::string("begin "), env(ddp::launch::kRank) + " ", std::to_string(i) + " end\n"}) {
      write_raw(1, part);
    }
  }
}

int signal_by_name(const std::string& name) {
  for (int signal = 1; signal < 32; ++signal) {
    const char* known = ::sigabbrev_np(signal);
    if (known && name == known) return signal;
  }
  std::abort();
}

std::string bytes_of(std::uint64_t number, std::size_t size = 8) {
  return {reinterpret_cast<const char*>(&number), size};  // little-endian, as this machine is
}

// "store: N", where N workers of this round have asked the store at MASTER_ADDR:MASTER_PORT. Waits
// until it replies or has closed.
void ask_store() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<in_port_t>(std::stoi(env(ddp::launch::kMasterPort))));
  ::inet_pton(AF_INET, env(ddp::launch::kMasterAddr).c_str(), &address.sin_addr);
  const std::string validate = '\0' + bytes_of(0x3C85F7CE, 4), key = "asked";
  const std::string add = '\4' + bytes_of(key.size()) + key + bytes_of(1);
  std::int64_t asked = 0;
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
    [[maybe_unused]] const auto sent = ::send(fd, (validate + add).data(), 5 + add.size(), 0);
    if (::recv(fd, &asked, sizeof asked, MSG_WAITALL) != sizeof asked) asked = 0;
  }
  ::close(fd);
  print(asked > 0 ? "store: " + std::to_string(asked) : "no answer");
}

void hold_until(int signal) {
  sigset_t wanted;
  ::sigemptyset(&wanted);
  ::sigaddset(&wanted, signal);
  ::sigprocmask(SIG_BLOCK, &wanted, nullptr);
  print("holding " + std::to_string(::getpid()));
  int got = 0;
  ::sigwait(&wanted, &got);
}

[[noreturn]] void wait_for_ever() {
  for (;;) ::pause();
}

// A descendant that only SIGKILL ends; "detached" leaves the worker's session and group.
void start_descendant(bool detached) {
  int ready[2];
  if (::pipe(ready) != 0) std::abort();
  if (::fork() == 0) {
    if (detached) ::setsid();
    for (int signal = 1; signal < 32; ++signal) ::signal(signal, SIG_IGN);
    if (detached && ::fork() != 0) ::_exit(0);  // a daemon: its parent has exited
    print("descendant " + std::to_string(::getpid()));
    ::close(ready[1]);
    wait_for_ever();
  }
  ::close(ready[1]);
  char byte;
  [[maybe_unused]] const auto got = ::read(ready[0], &byte, 1);
  ::close(ready[0]);
}

// Until the worker has ended and its launcher has seen that, or until SIGTERM.
[[noreturn]] void help(const std::string& until, pid_t worker, int end_of_worker) {
  sigset_t stop;
  ::sigemptyset(&stop);
  ::sigaddset(&stop, SIGTERM);
  int got = 0;
  if (until == "TERM") ::sigwait(&stop, &got);
  char byte;
  while (until == "end" && ::read(end_of_worker, &byte, 1) > 0) {
  }
  while (until == "end" && ::kill(worker, 0) == 0) ::sched_yield();
  if (until.empty()) wait_for_ever();
  print("helper cleaned up");
  ::_exit(0);
}

// A child in the worker's group, or a session of its own, that blocks every signal: those that
// reach it stay pending.
void start_helper(const std::string& until, bool detached) {
  sigset_t all;
  sigset_t before;
  int ends[2];
  if (::pipe(ends) != 0) std::abort();
  ::sigfillset(&all);
  ::sigprocmask(SIG_BLOCK, &all, &before);
  const pid_t worker = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    if (detached) ::setsid();
    ::close(ends[1]);
    help(until, worker, ends[0]);
  }
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  print("helper " + std::to_string(child));
}

// Its parent's state is D, uninterruptible sleep, until it ends.
[[noreturn]] void sleep_uninterruptibly() {
  if (::vfork() == 0) ::pause();
  ::_exit(1);
}

void print_descriptors() {
  std::string list = "fds";
  DIR* folder = ::opendir("/proc/self/fd");
  const int own = ::dirfd(folder);
  while (const dirent* entry = ::readdir(folder)) {
    if (entry->d_name[0] != '.' && std::atoi(entry->d_name) != own)
      list += std::string(" ") + entry->d_name;
  }
  ::closedir(folder);
  print(list);
}

// "<name> rss <KiB> fds <number>" (memory that it has written, not the program's pages) of the
// agent, which is our parent, and of the guardian, its parent.
void print_launcher_state() {
  std::string line;
  pid_t pid = ::getppid();
  for (const char* name : {"agent", "guardian"}) {
    const std::string folder = "/proc/" + std::to_string(pid);
    long rss = 0;
    long fds = -2;  // the two dots
    std::ifstream memory(folder + "/smaps_rollup");
    for (std::string word; memory >> word;) {
      if (word == "Anonymous:") memory >> rss;
    }
    DIR* list = ::opendir((folder + "/fd").c_str());
    while (list && ::readdir(list)) ++fds;
    if (list) ::closedir(list);
    line += std::string(name) + " rss " + std::to_string(rss) + " fds " + std::to_string(fds) + " ";
    std::ifstream status(folder + "/status");
    for (std::string word; status >> word;) {
      if (word == "PPid:") status >> pid;
    }
  }
  print(line + "end");
}

void print_signal_state() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("SigBlk", 0) == 0 || line.rfind("SigIgn", 0) == 0) print(line);
  }
}

void print_on_signal(int signal) { print(std::string("got SIG") + ::sigabbrev_np(signal)); }
void exit_on_signal(int signal) {
  print_on_signal(signal);
  ::_exit(g_trap_code);
}

bool is_spare() { return env(ddp::launch::kSpareFd) != "(unset)"; }

// A spare's pid into a named pipe, which stays open.
int tell(const std::string& pipe) {
  const int fd = ::open(pipe.c_str(), O_WRONLY | O_CLOEXEC);
  write_all(fd, std::to_string(::getpid()) + "\n");
  return fd;
}

// Reads a named pipe; returns when all processes that have opened it are dead.
void read_to_end(const std::string& pipe) {
  const int fd = ::open(pipe.c_str(), O_RDONLY | O_CLOEXEC);
  char byte;
  while (::read(fd, &byte, 1) > 0) {
  }
  ::close(fd);
}

std::string receive_worker(int socket, int (&streams)[3]) {
  std::string text(ddp::launch::kLongestHandover, '\0');
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof streams)];
  iovec part{text.data(), text.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = ::recvmsg(socket, &message, 0);
  if (got <= 0) ::_exit(0);
  std::memcpy(streams, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof streams);
  return text.substr(0, static_cast<std::size_t>(got));
}

// As a warm spare: says through `pipe` that it is ready, if there is one, and waits for its
// environment and its streams.
void become_worker(const std::string& pipe) {
  if (!is_spare()) return;
  const int socket = std::stoi(env(ddp::launch::kSpareFd));
  if (env(ddp::launch::kRank) != "(unset)" || ::send(socket, "x", 1, 0) != 1) std::abort();
  const int told = pipe.empty() ? -1 : tell(pipe);
  int streams[3];
  std::string text = receive_worker(socket, streams);
  for (int target = 0; target < 3; ++target) {
    ::dup2(streams[target], target);
    ::close(streams[target]);
  }
  ::close(socket);
  ::close(told);
  ::unsetenv(ddp::launch::kSpareFd);
  for (std::size_t at = 0; at < text.size(); at += std::strlen(&text[at]) + 1)
    ::putenv(::strdup(&text[at]));
  print("was a spare");
}

void act(const std::string& verb, const std::string& value) {
  if (verb == "print")
    print(value);
  else if (verb == "out")
    write_raw(1, value);
  else if (verb == "err")
    write_raw(2, value);
  else if (verb == "err-for-ever")
    write_for_ever(2);
  else if (verb == "repeat")
    write_often(value);
  else if (verb == "lines")
    print_lines(std::atoi(value.c_str()));
  else if (verb == "env")
    print(value + "=" + env(value.c_str()));
  else if (verb == "exit")
    ::exit(std::atoi(value.c_str()));
  else if (verb == "kill-self")
    ::raise(signal_by_name(value));
  else if (verb == "wait") {
    print("waiting " + std::to_string(::getpid()));
    wait_for_ever();
  } else if (verb == "ignore")
    ::signal(signal_by_name(value), SIG_IGN);
  else if (verb == "note")
    ::signal(signal_by_name(value), print_on_signal);
  else if (verb == "trap-exit") {
    g_trap_code = std::atoi(value.c_str());
    ::signal(SIGTERM, exit_on_signal);
    ::signal(SIGINT, exit_on_signal);
  } else if (verb == "child")
    start_descendant(false);
  else if (verb == "daemon")
    start_descendant(true);
  else if (verb == "helper")
    start_helper(value, false);
  else if (verb == "detached-helper")
    start_helper(value, true);
  else if (verb == "uninterruptible")
    sleep_uninterruptibly();
  else if (verb == "error-file")
    std::ofstream(env(ddp::launch::kErrorFile)) << value;
  else if (verb == "ask-store")
    ask_store();
  else if (verb == "hold")
    hold_until(signal_by_name(value));
  else if (verb == "beat")
    std::ofstream(env(ddp::launch::kHeartbeatFile)) << value;
  else if (verb == "open")
    ::open(value.c_str(), O_WRONLY | O_CLOEXEC);
  else if (verb == "until-eof")
    read_to_end(value);
  else if (verb == "spare")
    become_worker(value);
  else if (verb == "spare-exit" && is_spare())
    ::_exit(std::atoi(value.c_str()));
  else if (verb == "spare-tell" && is_spare())
    tell(value);
  else if (verb == "spare-exit" || verb == "spare-tell")
    ;
  else if (verb == "work")
    work_for(std::stoi(value));
  else if (verb == "burn")
    while (::getppid() > 0) {
    }
  else if (verb == "nice")
    print("nice " + std::to_string(::getpriority(PRIO_PROCESS, 0)));
  else if (verb == "shm")
    std::ofstream(env(ddp::launch::kShmDir) + "/state-of-" + env(ddp::launch::kRank)) << value;
  else if (verb == "fds")
    print_descriptors();
  else if (verb == "launcher-state")
    print_launcher_state();
  else if (verb == "signals")
    print_signal_state();
  else if (verb == "parent")
    print("parent " + std::to_string(::getppid()));
  else if (verb == "ids")
    print("pid " + std::to_string(::getpid()) + " group " + std::to_string(::getpgrp()) +
          " session " + std::to_string(::getsid(0)));
  else
    std::abort();
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    std::string action = argv[i];
    bool mine = true;
    while (action[0] == '@' || action[0] == '#') {
      const char* which = action[0] == '@' ? ddp::launch::kRank : ddp::launch::kRestartCount;
      std::size_t used = 0;
      const int wanted = std::stoi(action.substr(1), &used);
      mine = mine && env(which) == std::to_string(wanted);
      action.erase(0, used + 1);
    }
    const auto equals = action.find('=');
    if (mine)
      act(action.substr(0, equals), equals == std::string::npos ? "" : action.substr(equals + 1));
  }
}
