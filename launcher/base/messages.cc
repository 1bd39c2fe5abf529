#include "launcher/base/messages.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "launcher/base/text.h"

namespace ddp::launch {

int write_fully(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written > 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (written < 0 && errno == EAGAIN) {
      // Another process sharing the terminal made it non-blocking.
      pollfd writable{fd, POLLOUT, 0};
      ::poll(&writable, 1, 1000);
    } else if (written < 0 && errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

void say(std::string_view text) {
  write_fully(STDERR_FILENO, "ddp-run: " + without_middle(text) + "\n");
}

void say_error(std::string_view text) {
  write_fully(STDERR_FILENO, "error: " + without_middle(text) + "\n");
}

}  // namespace ddp::launch
