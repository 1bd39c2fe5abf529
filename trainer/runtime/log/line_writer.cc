#include "trainer/runtime/log/line_writer.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "trainer/runtime/log/log_line.h"

namespace ddp::train {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatience{2};
constexpr std::chrono::seconds kMostPatience{10};
constexpr std::chrono::milliseconds kBetweenLooks{50};  // while a stream is blocked
constexpr const char* kEraseLine = "\r\x1b[2K";         // ECMA-48, EL
constexpr uint64_t kRedraw = UINT64_MAX;                // number of the live line: after all others

bool same_file(int one, int other) {
  struct stat a {};
  struct stat b {};
  return ::fstat(one, &a) == 0 && ::fstat(other, &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino;
}

struct Line {
  uint64_t number = 0;  // over all streams
  std::string text;
};

struct Queue {
  LineWriter::Stream stream;
  std::deque<Line> lines;
  std::size_t bytes = 0;  // of `lines`
  Line current;           // being written, out of the queue
  std::size_t done = 0;   // bytes of it
  int64_t lost = 0;       // lines that are missing and not reported yet
  int64_t told = 0;       // lines that `current` reports as missing
  bool closed = false;    // its reader has exited

  bool idle() const { return current.text.empty() && lines.empty(); }
  uint64_t next_number() const {
    if (!current.text.empty()) return current.number;
    return lines.empty() ? kRedraw : lines.front().number;
  }
  Line take_oldest() {
    Line line = std::move(lines.front());
    lines.pop_front();
    bytes -= line.text.size();
    return line;
  }
  void drop_oldest() {
    take_oldest();
    ++lost;
  }
};

}  // namespace

struct LineWriter::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Queue> queues;
  std::string elsewhere;
  std::string live_line;  // to be shown after the last line
  std::string shown;      // what is shown there
  uint64_t numbers = 0;
  uint64_t progress = 0;  // pieces that streams have taken
  bool stopping = false;
  bool ended = false;  // the thread
  std::thread thread;

  ~State();
  bool redraw_due(const Queue& queue) const;
  bool idle(const Queue& queue) const { return queue.idle() && !redraw_due(queue); }
  bool idle() const;
  void add(Queue& queue, std::string line);
  void work();
  Queue* next_writable(std::unique_lock<std::mutex>& lock);
  bool overtakes(const Queue& queue) const;
  void take_line(Queue& queue);
  std::string next_text(Queue& queue) const;
  void write_piece(Queue& queue, std::unique_lock<std::mutex>& lock);
  void give_up_line(Queue& queue, int error);
  void close(Queue& queue, int error);
};

LineWriter::State::~State() {
  for (const auto& queue : queues) {
    if (queue.stream.owned) ::close(queue.stream.fd);
  }
}

bool LineWriter::State::redraw_due(const Queue& queue) const {
  return &queue == &queues.front() && !queue.closed && live_line != shown;
}

bool LineWriter::State::idle() const {
  return std::all_of(queues.begin(), queues.end(), [this](const Queue& q) { return idle(q); });
}

void LineWriter::State::add(Queue& queue, std::string line) {
  if (queue.closed || line.empty()) return;
  queue.bytes += line.size();
  queue.lines.push_back({numbers++, std::move(line)});
  if (queue.bytes <= kMostBytes) return;
  // Half of them at once: one gap, not one between any two lines.
  while (queue.bytes > kMostBytes / 2 && queue.lines.size() > 1) queue.drop_oldest();
}

void LineWriter::State::work() {
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [this] { return stopping || !idle(); });
    if (stopping) break;
    if (Queue* queue = next_writable(lock)) write_piece(*queue, lock);
    changed.notify_all();
  }
  ended = true;
  changed.notify_all();
}

/// The stream with the oldest line among those that take one now, or null after a while.
Queue* LineWriter::State::next_writable(std::unique_lock<std::mutex>& lock) {
  std::vector<pollfd> polled;
  for (const auto& queue : queues)
    polled.push_back({idle(queue) ? -1 : queue.stream.fd, POLLOUT, 0});
  lock.unlock();
  ::poll(polled.data(), polled.size(), static_cast<int>(kBetweenLooks.count()));
  lock.lock();
  Queue* oldest = nullptr;
  for (std::size_t i = 0; i < queues.size() && !stopping; ++i) {
    if (polled[i].revents == 0 || idle(queues[i])) continue;
    if (oldest == nullptr || queues[i].next_number() < oldest->next_number()) oldest = &queues[i];
  }
  return oldest == nullptr || overtakes(*oldest) ? nullptr : oldest;
}

// poll() looks at one descriptor after the other: a pipe that is read meanwhile is full for its
// first descriptor and not for its second.
bool LineWriter::State::overtakes(const Queue& queue) const {
  return std::any_of(queues.begin(), queues.end(), [&](const Queue& other) {
    return !idle(other) && other.next_number() < queue.next_number() &&
           same_file(other.stream.fd, queue.stream.fd);
  });
}

void LineWriter::State::take_line(Queue& queue) {
  queue.done = 0;
  queue.told = 0;
  const bool redraw = queue.lines.empty();
  const uint64_t number = queue.next_number();
  std::string text = redraw ? live_line : next_text(queue);
  // Erasing alone is a redraw, too: of a live line that is to go.
  if (queue.stream.terminal && (redraw || !shown.empty())) text.insert(0, kEraseLine);
  if (queue.stream.terminal) shown = redraw ? live_line : "";
  queue.current = {number, std::move(text)};
}

/// The oldest line, or how many are missing before it.
std::string LineWriter::State::next_text(Queue& queue) const {
  queue.told = std::exchange(queue.lost, 0);
  if (queue.told == 0) return queue.take_oldest().text;
  return log_line(
      LogLevel::kWarning,
      fmt::format("{} missing here: the reader was too slow{}",
                  queue.told == 1 ? "1 line is" : fmt::format("{} lines are", queue.told),
                  elsewhere.empty() ? "" : "; " + elsewhere));
}

// A pipe that has been polled takes PIPE_BUF bytes without waiting, unless another process is
// faster.
void LineWriter::State::write_piece(Queue& queue, std::unique_lock<std::mutex>& lock) {
  if (queue.current.text.empty()) take_line(queue);
  const char* data = queue.current.text.data() + queue.done;
  const std::size_t size = std::min<std::size_t>(queue.current.text.size() - queue.done, PIPE_BUF);
  lock.unlock();
  const ssize_t written = ::write(queue.stream.fd, data, size);
  const int error = errno;
  lock.lock();
  if (written < 0) return give_up_line(queue, error);
  ++progress;
  queue.done += static_cast<std::size_t>(written);
  if (queue.done == queue.current.text.size()) queue.current.text.clear();
}

void LineWriter::State::give_up_line(Queue& queue, int error) {
  if (error == EINTR || error == EAGAIN) return;
  if (error == EPIPE || error == EIO || error == EBADF) return close(queue, error);
  // A full disk: a later line may find room again. Each attempt costs a line, or it had no end.
  queue.current.text.clear();
  if (queue.current.number == kRedraw) return;
  queue.lost += queue.told;
  if (queue.told > 0)
    queue.drop_oldest();
  else
    ++queue.lost;
}

void LineWriter::State::close(Queue& queue, int error) {
  queue.closed = true;
  queue.lines.clear();
  queue.bytes = 0;
  queue.current.text.clear();
  const auto other =
      std::find_if(queues.begin(), queues.end(), [](const Queue& q) { return !q.closed; });
  if (other == queues.end()) return;
  add(*other,
      log_line(LogLevel::kWarning,
               fmt::format("{} is closed ({}); the run continues without it{}", queue.stream.name,
                           std::strerror(error), elsewhere.empty() ? "" : "; " + elsewhere)));
}

LineWriter::LineWriter(std::vector<Stream> streams, std::string elsewhere)
    : state_(std::make_shared<State>()) {
  state_->elsewhere = std::move(elsewhere);
  for (auto& stream : streams) {
    state_->queues.emplace_back();
    state_->queues.back().stream = std::move(stream);
  }
}

LineWriter::~LineWriter() {
  flush();
  std::unique_lock lock(state_->mutex);
  state_->stopping = true;
  state_->changed.notify_all();
  if (!state_->thread.joinable()) return;
  // Nobody can call a thread back from a write that never returns; the end of the process does.
  state_->changed.wait_for(lock, 4 * kBetweenLooks, [this] { return state_->ended; });
  const bool ended = state_->ended;
  lock.unlock();
  ended ? state_->thread.join() : state_->thread.detach();
}

void LineWriter::write(int fd, std::string line) {
  const std::scoped_lock lock(state_->mutex);
  const auto queue = std::find_if(state_->queues.begin(), state_->queues.end(),
                                  [fd](const Queue& q) { return q.stream.fd == fd; });
  if (queue == state_->queues.end()) return;
  state_->add(*queue, std::move(line));
  if (!state_->thread.joinable()) state_->thread = std::thread([state = state_] { state->work(); });
  state_->changed.notify_all();
}

void LineWriter::set_live_line(std::string text) {
  const std::scoped_lock lock(state_->mutex);
  if (state_->queues.empty() || !state_->queues.front().stream.terminal) return;
  state_->live_line = std::move(text);
  if (!state_->thread.joinable()) state_->thread = std::thread([state = state_] { state->work(); });
  state_->changed.notify_all();
}

bool LineWriter::flush() {
  std::unique_lock lock(state_->mutex);
  const auto end = Clock::now() + kMostPatience;
  while (!state_->idle() && Clock::now() < end) {
    const uint64_t before = state_->progress;
    const bool moved = state_->changed.wait_for(
        lock, kPatience, [&] { return state_->idle() || state_->progress != before; });
    if (!moved) return false;
  }
  return state_->idle();
}

}  // namespace ddp::train
