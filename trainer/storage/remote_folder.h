// One folder (prefix) in an object store: S3, anything that speaks S3, or Google Cloud Storage.
// Blocking calls, one attempt each; RemoteMirror retries in the background, retry() in the
// foreground.
#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "trainer/runtime/error.h"

namespace ddp::train {

/// The kinds of failed calls, by their fix.
enum class RemoteFailure {
  kAway,     ///< The store is unreachable, overloaded or broke off: may work later.
  kRefused,  ///< Credentials, permission, bucket or region are wrong: works only after a change.
  kMissing,  ///< There is no object of that name.
  kLocal,    ///< The file of this machine cannot be read or written.
  kStopped,  ///< The caller's stop token asked for it.
};

/// One line: the place (s3://bucket/key), what went wrong, and the fix where there is one.
class RemoteError : public RunError {
 public:
  RemoteError(RemoteFailure failure, const std::string& message)
      : RunError(message), failure_(failure) {}
  RemoteFailure failure() const { return failure_; }

 private:
  RemoteFailure failure_;
};

struct RemoteEntry {
  std::string name;  ///< Relative to the folder, without '/'.
  int64_t size = 0;  ///< Bytes.
};

/// Thread-safe. A call ends in bounded time if the store does not reply (about 10 s on S3; on
/// Google Cloud Storage its client gives up a stalled transfer after 2 minutes) and soon after
/// `stop` while data flows. All throw RemoteError. `name` is a plain name without '/'.
class RemoteFolder {
 public:
  virtual ~RemoteFolder() = default;

  /// For example `s3://bucket/runs/7`.
  virtual const std::string& url() const = 0;
  /// The object appears or is replaced atomically; after an error the old one is unchanged. Files
  /// over 10 MiB go in parts, several at a time, with at most 40 MiB in memory.
  virtual void upload(const std::string& local_file, const std::string& name,
                      const std::stop_token& stop = {}) = 0;
  /// Through AtomicFile: `local_file` is the whole object or what it was before.
  virtual void download(const std::string& name, const std::string& local_file,
                        const std::stop_token& stop = {}) = 0;
  /// Returns the objects directly in the folder, sorted by name; empty if there are none. kRefused
  /// if the bucket does not exist, so this is also the check at the start of a run.
  virtual std::vector<RemoteEntry> list(const std::stop_token& stop = {}) = 0;
  /// Removing a missing object succeeds.
  virtual void remove(const std::string& name, const std::stop_token& stop = {}) = 0;
};

/// `url` is RemotePath::folder. Reads the environment and loads the storage libraries, but asks no
/// server yet. Throws UserError for a malformed url and RunError if this trainer was built without
/// Arrow or the libraries cannot be loaded.
std::unique_ptr<RemoteFolder> open_remote_folder(const std::string& url);

}  // namespace ddp::train
