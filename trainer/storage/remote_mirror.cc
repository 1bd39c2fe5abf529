#include "trainer/storage/remote_mirror.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "trainer/runtime/files/descriptor.h"
#include "trainer/runtime/seed.h"

namespace ddp::train {
namespace {

using Clock = std::chrono::steady_clock;

/// Tells one content from another without reading it: AtomicFile gives each a new inode.
struct Identity {
  dev_t device = 0;
  ino_t inode = 0;
  int64_t size = 0;
  int64_t changed = 0;  // nanoseconds
  auto operator<=>(const Identity&) const = default;
};

/// A file held open: its content stays when its name goes.
class Pinned {
 public:
  explicit Pinned(const MirroredFile& file)
      : name(file.name), fd_(::open(file.local_file.c_str(), O_RDONLY | O_CLOEXEC)) {
    struct stat status {};
    if (fd_ < 0 || ::fstat(fd_, &status) != 0)
      throw RunError(fmt::format("cannot read {}: {}", file.local_file, std::strerror(errno)));
    identity = {status.st_dev, status.st_ino, status.st_size,
                status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec};
  }

  /// A path that opens this content as long as we live.
  std::string path() const { return fmt::format("/proc/self/fd/{}", static_cast<int>(fd_)); }

  std::string name;
  Identity identity;

 private:
  Descriptor fd_;
};

/// Files in the order in which they are sent, the manifest last.
using Publication = std::vector<Pinned>;

void block_all_signals() {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

}  // namespace

/// Shared by the callers and the one thread that talks to the store.
struct RemoteMirror::State {
  State(std::unique_ptr<RemoteFolder> f, MirrorOptions o)
      : folder(std::move(f)), options(std::move(o)) {}

  void run();
  bool wait_for_work(std::unique_lock<std::mutex>& lock);
  void wait_before_retry(std::unique_lock<std::mutex>& lock);
  std::optional<RemoteError> work_on(const Publication& publication);
  void send(const Pinned& file);
  void remove_others(const Publication& publication);
  std::set<std::string> remote_names();
  void succeeded();
  void failed(const RemoteError& error);
  void tell(LogLevel level, const std::string& text);
  std::vector<std::string> missing_of(const Publication& publication) const;

  const std::unique_ptr<RemoteFolder> folder;
  const MirrorOptions options;
  std::stop_source stop;

  mutable std::mutex mutex;
  std::condition_variable changed;
  std::shared_ptr<const Publication> waiting;  // newest publication that is not being sent
  std::shared_ptr<const Publication> current;  // being sent, or sent
  std::map<std::string, std::optional<Identity>> present;  // remote names; nullopt: not known what
  MirrorCounts counts;
  int failures = 0;    // in a row
  int flushing = 0;    // callers inside flush()
  bool done = true;    // `current` is sent whole
  bool ended = false;  // run() is over

  std::mutex telling;  // held while options.log runs, which must not outlive the mirror
  // Used by the thread only:
  RemoteFailure trouble = RemoteFailure::kStopped;  // the one last reported
  bool listed = false;                              // `present` has what was there before us
};

void RemoteMirror::State::run() {
  block_all_signals();
  std::unique_lock lock(mutex);
  while (wait_for_work(lock)) {
    const auto publication = current;
    lock.unlock();
    const auto error = work_on(*publication);
    if (error) failed(*error);
    lock.lock();
    done = !error;
    changed.notify_all();
    if (error) wait_before_retry(lock);
  }
  ended = true;
  changed.notify_all();
}

/// Makes the newest publication the current one; false at the end.
bool RemoteMirror::State::wait_for_work(std::unique_lock<std::mutex>& lock) {
  changed.wait(lock, [&] { return stop.stop_requested() || waiting || !done; });
  if (stop.stop_requested()) return false;
  if (waiting) current = std::exchange(waiting, nullptr);
  done = false;
  return true;
}

/// The first part is waited always, the rest unless a caller in flush() wants to know soon.
void RemoteMirror::State::wait_before_retry(std::unique_lock<std::mutex>& lock) {
  std::random_device entropy;
  const uint64_t random = mix64(entropy(), entropy());
  const RetrySchedule& schedule = options.schedule;
  const auto start = Clock::now();
  const auto whole = trouble == RemoteFailure::kAway ? schedule.wait(failures, random)
                                                     : schedule.longest;  // waits for a person
  changed.wait_until(lock, start + schedule.wait(1, random), [&] { return stop.stop_requested(); });
  changed.wait_until(lock, start + whole, [&] { return stop.stop_requested() || flushing > 0; });
}

std::optional<RemoteError> RemoteMirror::State::work_on(const Publication& publication) {
  try {
    for (const Pinned& file : publication) send(file);
    remove_others(publication);
    succeeded();
    return std::nullopt;
  } catch (const RemoteError& error) {
    return error;
  } catch (const std::exception& error) {  // out of memory, for example: later it may work
    return RemoteError(RemoteFailure::kAway, fmt::format("{}: {}", folder->url(), error.what()));
  }
}

void RemoteMirror::State::send(const Pinned& file) {
  {
    const std::lock_guard lock(mutex);
    const auto [at, added] = present.try_emplace(file.name, std::nullopt);
    if (at->second == file.identity) return;
  }
  const auto start = Clock::now();
  folder->upload(file.path(), file.name, stop.get_token());
  const std::chrono::duration<double> took = Clock::now() - start;
  {
    const std::lock_guard lock(mutex);
    present[file.name] = file.identity;
    ++counts.files;
    counts.bytes += file.identity.size;
    counts.seconds += took.count();
  }
  succeeded();
}

/// All that we may remove: what we sent and, once asked, what is ours of earlier processes.
std::set<std::string> RemoteMirror::State::remote_names() {
  std::vector<RemoteEntry> entries;
  if (options.owns && !listed) entries = folder->list(stop.get_token());
  const std::lock_guard lock(mutex);
  for (const RemoteEntry& entry : entries) {
    if (!stop.stop_requested() && options.owns(entry.name))
      present.try_emplace(entry.name, std::nullopt);
  }
  listed = true;
  std::set<std::string> names;
  for (const auto& [name, identity] : present) names.insert(name);
  return names;
}

void RemoteMirror::State::remove_others(const Publication& publication) {
  std::set<std::string> others = remote_names();
  for (const Pinned& file : publication) others.erase(file.name);
  for (const std::string& name : others) {
    folder->remove(name, stop.get_token());
    const std::lock_guard lock(mutex);
    present.erase(name);
  }
}

void RemoteMirror::State::succeeded() {
  {
    const std::lock_guard lock(mutex);
    failures = 0;
    if (!std::exchange(counts.store_away, false)) return;
  }
  tell(LogLevel::kInfo, fmt::format("{}: uploads work again", folder->url()));
}

/// Told once, and again when the trouble becomes another one.
void RemoteMirror::State::failed(const RemoteError& error) {
  if (error.failure() == RemoteFailure::kStopped) return;
  bool told = false;
  {
    const std::lock_guard lock(mutex);
    ++counts.failures;
    ++failures;
    told = std::exchange(counts.store_away, true) && trouble == error.failure();
  }
  trouble = error.failure();
  if (told) return;
  tell(trouble == RemoteFailure::kAway ? LogLevel::kWarning : LogLevel::kError,
       fmt::format("{}; training continues, snapshots are kept here and uploaded later",
                   error.what()));
}

void RemoteMirror::State::tell(LogLevel level, const std::string& text) {
  const std::lock_guard lock(telling);
  if (options.log && !stop.stop_requested()) options.log(level, text);
}

std::vector<std::string> RemoteMirror::State::missing_of(const Publication& publication) const {
  std::vector<std::string> names;
  for (const Pinned& file : publication) {
    const auto at = present.find(file.name);
    if (at == present.end() || at->second != file.identity) names.push_back(file.name);
  }
  return names;
}

RemoteMirror::RemoteMirror(std::unique_ptr<RemoteFolder> folder, MirrorOptions options)
    : state_(std::make_shared<State>(std::move(folder), std::move(options))) {
  std::thread([state = state_] { state->run(); }).detach();
}

RemoteMirror::~RemoteMirror() {
  state_->stop.request_stop();
  std::unique_lock lock(state_->mutex);
  state_->changed.notify_all();
  state_->changed.wait_for(lock, state_->options.patience, [this] { return state_->ended; });
  lock.unlock();
  const std::lock_guard nobody_tells(state_->telling);
}

void RemoteMirror::publish(const std::vector<MirroredFile>& files, const MirroredFile& manifest) {
  auto publication = std::make_shared<Publication>();
  publication->reserve(files.size() + 1);
  for (const MirroredFile& file : files) publication->emplace_back(file);
  publication->emplace_back(manifest);
  const std::lock_guard lock(state_->mutex);
  if (state_->waiting) ++state_->counts.superseded;
  state_->waiting = std::move(publication);
  state_->changed.notify_all();
}

void RemoteMirror::adopt(const MirroredFile& file) {
  const Identity identity = Pinned(file).identity;
  const std::lock_guard lock(state_->mutex);
  state_->present[file.name] = identity;
}

std::vector<std::string> RemoteMirror::flush(std::chrono::milliseconds limit) {
  std::unique_lock lock(state_->mutex);
  ++state_->flushing;
  state_->changed.notify_all();
  state_->changed.wait_for(lock, limit, [this] { return !state_->waiting && state_->done; });
  --state_->flushing;
  const auto& wanted = state_->waiting ? state_->waiting : state_->current;
  return wanted ? state_->missing_of(*wanted) : std::vector<std::string>{};
}

MirrorCounts RemoteMirror::counts() const {
  const std::lock_guard lock(state_->mutex);
  return state_->counts;
}

}  // namespace ddp::train
