// Mirrors a local folder to a remote one in the background: training never waits for the store, and
// a store that was unreachable gets the newest state once it is back.
//
// Use (rank 0 alone):
//   RemoteMirror mirror(open_remote_folder(url), options);   // at the start
//   mirror.publish({newest, older, ...}, manifest);          // after each save and its rotation
//   auto unsent = mirror.flush(20s);                         // at the end: names still missing
// It does not read the files' content, choose which files are kept, or restore anything.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trainer/runtime/log/log.h"
#include "trainer/storage/remote_folder.h"
#include "trainer/storage/retry.h"

namespace ddp::train {

struct MirroredFile {
  std::string local_file;
  std::string name;  ///< In the remote folder.
};

struct MirrorOptions {
  RetrySchedule schedule;
  /// Whether the mirror may remove the remote object of this name once it is not published any
  /// more. Empty: only objects that this mirror put there. With it, also what earlier processes of
  /// the run left in the folder.
  std::function<bool(const std::string& name)> owns;
  /// Receives one warning when the store becomes unreachable, one error if it refuses, one info
  /// when uploads work again. Called from the mirror's thread.
  std::function<void(LogLevel, const std::string&)> log;
  /// How long the destructor waits for a hung call in the store's client.
  std::chrono::milliseconds patience{5'000};
};

struct MirrorCounts {
  int64_t files = 0;        ///< Objects sent, manifests included.
  int64_t bytes = 0;        ///< Total size of these files.
  int64_t failures = 0;     ///< Calls to the store that failed.
  int64_t superseded = 0;   ///< Publications that a newer one replaced before they were sent.
  double seconds = 0;       ///< Spent sending.
  bool store_away = false;  ///< The last call to the store failed.
};

/// All functions may be called from any thread.
class RemoteMirror {
 public:
  RemoteMirror(std::unique_ptr<RemoteFolder> folder, MirrorOptions options);
  /// Aborts uploads in progress; a partial upload is never visible. Call flush() first.
  ~RemoteMirror();
  RemoteMirror(const RemoteMirror&) = delete;
  RemoteMirror& operator=(const RemoteMirror&) = delete;

  /// From now on the remote folder shall hold exactly `files` and `manifest`. Returns at once,
  /// having opened every file: they may be renamed, replaced or deleted right after, and what was
  /// published is what is sent. Sends the files that are not there yet in the given order (newest
  /// first), then the manifest, then removes what is no longer named: whenever a reader looks,
  /// every file that the manifest names is there. A publication that is being sent is finished
  /// before the next one is begun, unless the store fails; of those waiting only the last one
  /// counts. Throws RunError when a file cannot be opened.
  void publish(const std::vector<MirroredFile>& files, const MirroredFile& manifest);

  /// Marks a remote object as equal to the local file, e.g. after a download: publish() does not
  /// send it again.
  void adopt(const MirroredFile& file);

  /// Waits until the last publication is sent, at most `limit`; tries at once and more often while
  /// somebody waits here. Returns the names that are missing or outdated in the store, empty when
  /// all is there.
  std::vector<std::string> flush(std::chrono::milliseconds limit);

  MirrorCounts counts() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the thread, which may outlive us in a hung call
};

}  // namespace ddp::train
