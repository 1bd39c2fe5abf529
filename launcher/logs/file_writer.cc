#include "launcher/logs/file_writer.h"

#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "launcher/base/system/descriptors.h"

namespace ddp::launch {
namespace {

constexpr std::size_t kJoined = 64 << 10;  // bytes of short texts that are written at once
constexpr std::size_t kMostSpares = 16;
constexpr auto kSparesKept = std::chrono::milliseconds(100);  // by an idle thread
constexpr std::size_t kThreadStack = 256 << 10;  // a rotation copies in parts of 64 KiB

}  // namespace

// All but `write` is guarded by Shared::mutex.
struct FileWriter::File {
  std::string name;
  Write write;  // the thread's
  std::deque<std::string> parts{};
  std::size_t waiting = 0;  // bytes in parts and in the part that the thread is writing
  std::uint64_t written = 0;
  int error = 0;
  bool is_due = false;   // in Shared::due
  bool closed = false;   // nothing more will be appended
  bool dropped = false;  // nothing more is written
};

// Lives as long as the thread, which may be stuck in a write after the FileWriter's end.
struct FileWriter::Shared {
  mutable std::mutex mutex;
  std::condition_variable work;
  std::deque<FilePtr> due;  // to be written or closed
  FilePtr current;
  std::vector<std::string> spares;  // buffers
  std::vector<FilePtr> failed;
  bool over = false;
  bool given_up = false;
  bool wanted = false;  // the poll loop waits for progress
  // Read without the mutex, which the poll loop would take for nothing in most turns.
  std::atomic<std::size_t> backlog = 0;
  std::atomic<std::uint64_t> progress = 0;
  std::atomic<bool> is_ready = false;  // `event` is
  Descriptor event;
  pthread_t thread{};
  enum { kNotYet, kRuns, kCannot } state = kNotYet;

  bool is_idle() const { return given_up || (due.empty() && !current); }

  const File& first() const { return current ? *current : *due.front(); }

  void enqueue(const FilePtr& file) {
    if (std::exchange(file->is_due, true)) return;
    due.push_back(file);
    if (!current) work.notify_one();
  }

  // Writes the first part of the first file, without the lock.
  void write_next(std::unique_lock<std::mutex>& lock) {
    current = std::move(due.front());
    due.pop_front();
    current->is_due = false;
    std::string part;
    const bool has_part = current->error == 0 && !current->parts.empty();
    if (has_part) {
      part = std::move(current->parts.front());
      current->parts.pop_front();
    }
    const bool last = current->closed && current->parts.empty();
    lock.unlock();
    const int error = has_part ? current->write(part) : 0;
    if (last) current->write = nullptr;
    lock.lock();
    absorb(error, part);
    if (!current->parts.empty() && current->error == 0) enqueue(current);
    current = nullptr;
    ++progress;
    if (wanted || error != 0) get_ready();
  }

  void absorb(int error, std::string& part) {
    if (!given_up && error == 0) {
      current->written += part.size();
      current->waiting -= part.size();
      backlog -= part.size();
    } else if (!given_up) {
      current->error = error;
      current->parts.push_front(part);
      failed.push_back(current);
    }
    if (part.size() > kJoined && spares.size() < kMostSpares) spares.push_back(std::move(part));
  }

  void get_ready() {
    wanted = false;
    if (is_ready.exchange(true)) return;
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto told = ::write(event.get(), &one, sizeof one);
  }

  // Returns false if there is nothing to do any more.
  bool wait_for_work(std::unique_lock<std::mutex>& lock) {
    const auto comes = [this] { return over || !due.empty(); };
    if (!spares.empty() && !work.wait_for(lock, kSparesKept, comes)) {
      spares = {};
      ::malloc_trim(0);  // a burst's memory
    }
    work.wait(lock, comes);
    return !due.empty();
  }
};

void* FileWriter::run(void* argument) {
  const std::unique_ptr<std::shared_ptr<Shared>> owner(
      static_cast<std::shared_ptr<Shared>*>(argument));
  Shared& shared = **owner;
  ::prctl(PR_SET_NAME, "ddp-files");
  ::unshare(CLONE_FS);  // best effort: the poll loop changes the umask for a moment
  std::unique_lock lock(shared.mutex);
  while (shared.wait_for_work(lock)) shared.write_next(lock);
  return nullptr;
}

FileWriter::FileWriter() : shared_(std::make_shared<Shared>()) {}

FileWriter::~FileWriter() {
  if (shared_->state != Shared::kRuns) return;
  give_up();
  bool may_block = false;
  {
    const std::lock_guard lock(shared_->mutex);
    may_block = shared_->given_up;
    shared_->over = true;
    shared_->work.notify_one();
  }
  if (may_block)
    ::pthread_detach(shared_->thread);
  else
    ::pthread_join(shared_->thread, nullptr);
}

bool FileWriter::has_thread() {
  if (shared_->state != Shared::kNotYet) return shared_->state == Shared::kRuns;
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, kThreadStack);
  auto owner = std::make_unique<std::shared_ptr<Shared>>(shared_);
  shared_->event = Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const bool runs = shared_->event.get() >= 0 &&
                    ::pthread_create(&shared_->thread, &attributes, run, owner.get()) == 0;
  if (runs) static_cast<void>(owner.release());  // run() owns it
  ::pthread_attr_destroy(&attributes);
  shared_->state = runs ? Shared::kRuns : Shared::kCannot;
  return runs;
}

FileWriter::FilePtr FileWriter::open(std::string name, Write write) {
  return std::make_shared<File>(File{.name = std::move(name), .write = std::move(write)});
}

void FileWriter::append(const FilePtr& file, std::string_view text) {
  append_part(file, text, nullptr);
}

void FileWriter::append(const FilePtr& file, std::string&& text) { append_part(file, text, &text); }

void FileWriter::append_part(const FilePtr& file, std::string_view text, std::string* whole) {
  const bool later = has_thread();
  std::unique_lock lock(shared_->mutex);
  if (file->dropped || shared_->given_up) return;
  const std::size_t size = text.size();
  if (whole)
    file->parts.push_back(std::move(*whole));
  else if (!file->parts.empty() && file->parts.back().size() + size <= kJoined)
    file->parts.back() += text;
  else
    file->parts.emplace_back(text);
  file->waiting += size;
  shared_->backlog += size;
  if (file->error == 0) shared_->enqueue(file);
  while (!later && !shared_->due.empty()) shared_->write_next(lock);
}

std::string FileWriter::spare_buffer() {
  const std::lock_guard lock(shared_->mutex);
  if (shared_->spares.empty()) return {};
  std::string spare = std::move(shared_->spares.back());
  shared_->spares.pop_back();
  return spare;
}

void FileWriter::close(FilePtr& file) {
  const FilePtr closed = std::move(file);
  if (!closed || shared_->state != Shared::kRuns) return;  // nothing was ever appended
  const std::lock_guard lock(shared_->mutex);
  closed->closed = true;
  shared_->enqueue(closed);
}

std::uint64_t FileWriter::written(const File& file) const {
  const std::lock_guard lock(shared_->mutex);
  return file.written;
}

std::size_t FileWriter::waiting(const File& file) const {
  const std::lock_guard lock(shared_->mutex);
  return file.waiting;
}

std::size_t FileWriter::waiting() const { return shared_->backlog; }

bool FileWriter::is_idle() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->is_idle();
}

std::string FileWriter::current() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->is_idle() ? "" : shared_->first().name;
}

std::uint64_t FileWriter::progress() const { return shared_->progress; }

int FileWriter::wait_fd(bool wants_progress, std::uint64_t seen) {
  if (shared_->state != Shared::kRuns) return -1;
  const std::lock_guard lock(shared_->mutex);
  shared_->wanted = wants_progress;
  if (wants_progress && shared_->progress != seen) shared_->get_ready();
  return shared_->event.get();
}

std::vector<FileWriter::Failure> FileWriter::take_failures() {
  std::vector<Failure> failures;
  if (!shared_->is_ready) return failures;
  const std::lock_guard lock(shared_->mutex);
  shared_->is_ready = false;
  std::uint64_t ignored = 0;
  [[maybe_unused]] const auto got = ::read(shared_->event.get(), &ignored, sizeof ignored);
  for (const FilePtr& file : std::exchange(shared_->failed, {})) {
    file->dropped = true;
    shared_->backlog -= file->waiting;
    file->waiting = 0;
    failures.push_back({file, file->name, file->error, {}});
    for (const std::string& part : std::exchange(file->parts, {})) failures.back().rest += part;
  }
  return failures;
}

std::optional<FileWriter::Lost> FileWriter::give_up() {
  const std::lock_guard lock(shared_->mutex);
  if (shared_->is_idle()) return std::nullopt;
  shared_->given_up = true;
  for (const FilePtr& file : shared_->due) file->parts.clear();  // the thread closes them
  if (shared_->current) shared_->current->parts.clear();
  shared_->failed.clear();
  return Lost{shared_->first().name, shared_->backlog.exchange(0)};
}

}  // namespace ddp::launch
