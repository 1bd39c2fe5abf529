#if __has_include(<catch2/catch_session.hpp>)
#include <catch2/catch_session.hpp>
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#endif

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

void do_nothing(int) {}

// What a login shell gives its programs, however this one was started: nohup, a service manager or
// a script may ignore signals, close stdin and set a umask, and the programs under test inherit it.
// A handler in place of SIG_IGN is reset to the default by exec, and a hangup still ends no test.
void set_usual_surroundings() {
  int fd = ::open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= STDERR_FILENO) fd = ::open("/dev/null", O_RDWR);
  ::close(fd);
  ::umask(022);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  struct sigaction action {};
  for (int number = 1; number < NSIG; ++number) {
    if (::sigaction(number, nullptr, &action) != 0 || action.sa_handler != SIG_IGN) continue;
    action.sa_handler = do_nothing;
    action.sa_flags = SA_RESTART;
    ::sigaction(number, &action, nullptr);
  }
}

}  // namespace

int main(int argc, char** argv) {
  set_usual_surroundings();
  Catch::Session session;
  // A name that selects nothing fails instead of passing: CMake splits names at semicolons. Version
  // 3 fails on its own.
#ifdef CATCH_VERSION_MAJOR
#if CATCH_VERSION_MAJOR < 3
  session.configData().warnings = Catch::WarnAbout::NoTests;
#endif
#endif
  return session.run(argc, argv);
}
