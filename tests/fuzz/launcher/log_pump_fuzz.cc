// The whole pump, with real pipes and files: the files hold every byte, and it always comes to an
// end. Input: three bytes of settings, then what two workers write.
#include "launcher/logs/log_pump.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "tests/fuzz/check.h"

using namespace ddp::launch;

namespace {

namespace fs = std::filesystem;

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string with_rotated(const fs::path& path, int keep) {
  std::string all;
  for (int age = keep; age > 0; --age) all += contents(path.string() + "." + std::to_string(age));
  return all + contents(path);
}

// One folder for the process; its own console is nobody's business.
const fs::path& folder() {
  static const fs::path path = [] {
    std::string name = (fs::temp_directory_path() / "ddp_fuzz_XXXXXX").string();
    FUZZ_CHECK(::mkdtemp(name.data()) != nullptr);
    static const std::string kept = name;
    std::atexit([] {
      std::error_code ignored;
      fs::remove_all(kept, ignored);
    });
    return fs::path(name);
  }();
  return path;
}

struct Writer {
  StreamPlan plan;
  int fd = -1;
  std::string written;
};

void write_to(Writer& worker, std::string_view text) {
  FUZZ_CHECK(::write(worker.fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  worker.written += text;
}

void turn(LogPump& pump) {
  std::vector<pollfd> fds;
  pump.add_poll_fds(fds);
  FUZZ_CHECK(::poll(fds.data(), fds.size(), 0) >= 0);
  pump.handle(fds);
}

constexpr int kKeep = 1000;

StreamPlan plan_for(int rank, const std::uint8_t* settings) {
  StreamPlan plan;
  plan.mode = StreamMode::kPump;
  plan.file = folder() / std::to_string(rank);
  plan.rotation = {(settings[0] & 1) != 0 ? 64U + settings[1] : 0U, kKeep};
  plan.console = rank == 0;  // rank 1 writes to stderr, which libFuzzer needs for itself
  plan.by_line = (settings[0] & 2) != 0;
  plan.fold = std::chrono::milliseconds((settings[0] & 4) != 0 ? 1 : 0);
  plan.prefix =
      LinePrefix((settings[0] & 8) != 0 ? "$time $rank:" : "[$rank]:", {"r", "h", rank, rank});
  if ((settings[0] & 16) != 0) {
    plan.filters = {"a", ""};
    plan.filter_file = folder() / "filtered";
  }
  return plan;
}

}  // namespace

/// Every combination of the switches, each with another limit of the files.
extern "C" bool vary_input(char* data, int variant) {
  data[0] = static_cast<char>(variant);
  data[1] = static_cast<char>(7 * variant);
  return variant < 32;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3 || size > 40'000) return 0;
  for (const auto& entry : fs::directory_iterator(folder())) fs::remove(entry.path());
  const int null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  const int own_stdout = ::dup(STDOUT_FILENO);
  ::dup2(null, STDOUT_FILENO);
  {
    LogPump pump;
    Writer workers[2];
    for (int rank = 0; rank < 2; ++rank) {
      workers[rank].plan = plan_for(rank, data);
      workers[rank].fd = pump.open_stream(workers[rank].plan, rank, rank == 1).release();
      FUZZ_CHECK(workers[rank].fd >= 0);
    }
    std::string_view rest(reinterpret_cast<const char*>(data) + 3, size - 3);
    for (int next = 0; !rest.empty(); ++next) {
      const std::string_view piece = rest.substr(0, 1U + data[2] * 16U);
      write_to(workers[next % 2], piece);
      rest.remove_prefix(piece.size());
      if (next % 3 != 0) turn(pump);
    }
    for (Writer& worker : workers) ::close(worker.fd);
    turn(pump);
    pump.finish_round();
    FUZZ_CHECK(pump.flush(LogPump::Patience::kUnlimited));
    for (const Writer& worker : workers) {
      FUZZ_CHECK(with_rotated(worker.plan.file, kKeep) == worker.written);
    }
    const std::string& said = workers[1].written;
    const std::string tail = pump.last_stderr(1);
    FUZZ_CHECK(tail.size() >= std::min<std::size_t>(said.size(), 16 << 10));
    FUZZ_CHECK(said.substr(said.size() - tail.size()) == tail);
  }
  ::dup2(own_stdout, STDOUT_FILENO);
  ::close(own_stdout);
  ::close(null);
  return 0;
}
