// RemoteFolder over Arrow's S3 and Google Cloud Storage file systems. The only file that sees
// Arrow; part of libtrainer_arrow.so, see arrow_module.h.
#include <arrow/buffer.h>
#include <arrow/filesystem/gcsfs.h>
#include <arrow/filesystem/s3fs.h>
#include <arrow/io/interfaces.h>
#include <arrow/result.h>
#include <arrow/util/logging.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>

#include "trainer/runtime/files/atomic_file.h"
#include "trainer/runtime/files/descriptor.h"
#include "trainer/storage/arrow_module.h"
#include "trainer/storage/store_errors.h"
#include "trainer/storage/store_settings.h"

namespace ddp::train {
namespace {

namespace arrow_fs = arrow::fs;

constexpr int64_t kPart = 10 << 20;  // Arrow's part of a multipart upload: sent as it is, uncopied
constexpr int kPartsAtOnce = 4;
constexpr double kConnectSeconds = 5;
constexpr double kSilenceSeconds = 10;  // not a byte: the attempt is given up
constexpr double kGcsRetrySeconds = 3;
constexpr int64_t kS3Attempts = 2;
constexpr int64_t kS3RetryMilliseconds = 200;

/// Signals that `set` names wait while it lives; a SIGPIPE that came meanwhile is dropped. TLS
/// writes to a closed connection would else end the process. Threads started meanwhile inherit it.
class HeldSignals {
 public:
  explicit HeldSignals(bool all = false) {
    sigset_t held;
    ::sigemptyset(&held);
    if (all) ::sigfillset(&held);
    ::sigaddset(&held, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &held, &before_);
  }
  ~HeldSignals() {
    if (::sigismember(&before_, SIGPIPE) == 0) {
      sigset_t pipe;
      ::sigemptyset(&pipe);
      ::sigaddset(&pipe, SIGPIPE);
      const timespec at_once{};
      while (::sigtimedwait(&pipe, nullptr, &at_once) == SIGPIPE) {
      }
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

 private:
  sigset_t before_{};
};

/// A local file, read in order.
class LocalFile {
 public:
  explicit LocalFile(const std::string& path)
      : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ < 0) fail();
  }

  /// Fewer bytes than asked for at the end of the file alone.
  int64_t read(uint8_t* to, int64_t size) {
    int64_t have = 0;
    while (have < size) {
      const ssize_t n = ::read(fd_, to + have, static_cast<std::size_t>(size - have));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail();
      if (n == 0) break;
      have += n;
    }
    return have;
  }

 private:
  [[noreturn]] void fail() const {
    throw RemoteError(RemoteFailure::kLocal,
                      fmt::format("cannot read {}: {}", path_, std::strerror(errno)));
  }
  std::string path_;
  Descriptor fd_;
};

/// One quick retry of what the SDK holds for a passing fault; longer waits are the caller's.
class OneRetry : public arrow_fs::S3RetryStrategy {
 public:
  bool ShouldRetry(const AWSErrorDetail& error, int64_t attempted) override {
    return error.should_retry && attempted + 1 < kS3Attempts;
  }
  int64_t CalculateDelayBeforeNextRetry(const AWSErrorDetail& /*error*/,
                                        int64_t /*attempted*/) override {
    return kS3RetryMilliseconds;
  }
};

std::atomic<int> calls_under_way = 0;

/// Around each call into Arrow.
struct Call {
  Call() { ++calls_under_way; }
  ~Call() { --calls_under_way; }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  HeldSignals no_sigpipe;
};

/// The SDK wants to be shut down before the end of the process. While a call hangs in a client that
/// would wait for it, minutes perhaps: then the process ends here, with the status that it has.
void finish(int status, void* /*nothing*/) {
  if (calls_under_way == 0) {
    static_cast<void>(arrow_fs::EnsureS3Finalized());
    return;
  }
  std::fflush(nullptr);
  ::_exit(status);
}

/// Arrow makes statics at the first use of each of its parts; an exit handler registered after that
/// runs before they are destroyed.
struct FinishAfterwards {
  std::once_flag& once;
  ~FinishAfterwards() {
    std::call_once(once, [] { ::on_exit(finish, nullptr); });
  }
};

void start_s3(const S3Settings& settings) {
  static std::once_flag once;
  std::call_once(once, [&] {
    // The SDK knows this switch only as a variable; nobody else in this process reads it.
    if (!settings.metadata_service) ::setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    arrow_fs::S3GlobalOptions options{};
    options.log_level = arrow_fs::S3LogLevel::Off;
    static_cast<void>(arrow_fs::InitializeS3(options));
  });
}

/// Arrow passes the setting on to S3 alone; Google's client has OpenSSL look at the variable.
void use_certificates(const Surroundings& around) {
  static std::once_flag once;
  std::call_once(once, [&] {
    arrow_fs::FileSystemGlobalOptions options;
    options.tls_ca_file_path = certificate_file(around);
    if (options.tls_ca_file_path.empty()) options.tls_ca_dir_path = "/etc/ssl/certs";
    static_cast<void>(arrow_fs::Initialize(options));
    if (!options.tls_ca_file_path.empty() && around.variable("SSL_CERT_FILE").empty())
      ::setenv("SSL_CERT_FILE", options.tls_ca_file_path.c_str(), 1);
  });
}

bool is_s3(const std::string& url) { return url.starts_with("s3://"); }

/// `bucket/key`, as Arrow takes it.
std::string arrow_path(const std::string& url) { return url.substr(url.find("://") + 3); }

/// An object that is being written.
struct Outgoing {
  std::shared_ptr<arrow::io::OutputStream> stream;
  bool broken = false;  // it has told an error itself
};

class ArrowFolder : public RemoteFolder {
 public:
  explicit ArrowFolder(const std::string& url) : url_(url), around_(surroundings()) {
    const HeldSignals for_new_threads(true);
    static std::once_flag once;
    const FinishAfterwards finish_afterwards{once};
    static_cast<void>(arrow::io::default_io_context());  // makes its threads' pool
    // What Arrow has to say comes as a status, too.
    arrow::util::ArrowLog::StartArrowLog("trainer", arrow::util::ArrowLogLevel::ARROW_FATAL);
    use_certificates(around_);
    if (is_s3(url)) {
      s3_ = s3_settings(around_);
      start_s3(s3_);
    } else {
      gcs_ = gcs_settings(around_);
    }
  }

  const std::string& url() const override { return url_; }
  void upload(const std::string& local_file, const std::string& name,
              const std::stop_token& stop) override;
  void download(const std::string& name, const std::string& local_file,
                const std::stop_token& stop) override;
  std::vector<RemoteEntry> list(const std::stop_token& stop) override;
  void remove(const std::string& name, const std::stop_token& stop) override;

 private:
  std::string place(const std::string& name) const { return url_ + "/" + name; }
  std::string path(const std::string& name) const { return arrow_path(place(name)); }

  void check_stop(const std::string& name, const std::stop_token& stop) const {
    if (stop.stop_requested())
      throw RemoteError(RemoteFailure::kStopped, place(name) + ": stopped");
  }
  void check(StoreCall call, const std::string& at, const arrow::Status& status) const {
    if (!status.ok()) throw store_error(call, at, status.ToStringWithoutContextLines());
  }
  template <class T>
  T get(StoreCall call, const std::string& at, arrow::Result<T> result) const {
    check(call, at, result.status());
    return std::move(result).ValueUnsafe();
  }

  /// The file system, made when it is first used: asking for credentials or a region may take time.
  std::shared_ptr<arrow_fs::FileSystem> connected(StoreCall call);
  std::shared_ptr<arrow_fs::FileSystem> connect_s3(StoreCall call) const;
  std::shared_ptr<arrow_fs::FileSystem> connect_gcs(StoreCall call) const;
  void send(LocalFile& file, const std::string& name, Outgoing& out,
            const std::stop_token& stop) const;
  void check(const std::string& name, Outgoing& out, const arrow::Status& status) const;
  void give_up(Outgoing out) const;

  const std::string url_;
  const Surroundings around_;
  S3Settings s3_;
  GcsSettings gcs_;
  std::mutex mutex_;
  std::shared_ptr<arrow_fs::FileSystem> file_system_;
};

std::shared_ptr<arrow_fs::FileSystem> ArrowFolder::connected(StoreCall call) {
  const std::lock_guard lock(mutex_);
  if (!file_system_) file_system_ = is_s3(url_) ? connect_s3(call) : connect_gcs(call);
  return file_system_;
}

std::shared_ptr<arrow_fs::FileSystem> ArrowFolder::connect_s3(StoreCall call) const {
  arrow_fs::S3Options options = arrow_fs::S3Options::Defaults();
  if (options.GetAccessKey().empty()) {
    throw RemoteError(RemoteFailure::kRefused,
                      url_ +
                          ": no credentials found; set AWS_ACCESS_KEY_ID and "
                          "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE and ~/.aws/credentials");
  }
  options.scheme = s3_.scheme;
  options.endpoint_override = s3_.endpoint;
  options.region = s3_.region;
  options.connect_timeout = kConnectSeconds;
  options.request_timeout = kSilenceSeconds;
  options.retry_strategy = std::make_shared<OneRetry>();
  options.allow_delayed_open = true;  // a small file is one request
  const std::string bucket = arrow_path(url_).substr(0, arrow_path(url_).find('/'));
  if (options.region.empty()) {
    static std::once_flag once;
    const FinishAfterwards finish_afterwards{once};
    options.region = get(call, url_, arrow_fs::ResolveS3BucketRegion(bucket));
  }
  static std::once_flag once;
  const FinishAfterwards finish_afterwards{once};
  return get(call, url_, arrow_fs::S3FileSystem::Make(options));
}

std::shared_ptr<arrow_fs::FileSystem> ArrowFolder::connect_gcs(StoreCall call) const {
  if (!gcs_.credentials_found) {
    throw RemoteError(RemoteFailure::kRefused,
                      url_ +
                          ": no credentials found; set GOOGLE_APPLICATION_CREDENTIALS, or "
                          "run 'gcloud auth application-default login'");
  }
  arrow_fs::GcsOptions options =
      gcs_.anonymous ? arrow_fs::GcsOptions::Anonymous() : arrow_fs::GcsOptions::Defaults();
  options.scheme = gcs_.scheme;
  options.endpoint_override = gcs_.endpoint;
  options.retry_limit_seconds = kGcsRetrySeconds;
  return get(call, url_, arrow_fs::GcsFileSystem::Make(options));
}

void ArrowFolder::upload(const std::string& local_file, const std::string& name,
                         const std::stop_token& stop) {
  const Call under_way;
  check_stop(name, stop);
  LocalFile file(local_file);
  const auto files = connected(StoreCall::kUpload);
  Outgoing out{get(StoreCall::kUpload, place(name), files->OpenOutputStream(path(name)))};
  try {
    send(file, name, out, stop);
    check(name, out, out.stream->Close());
  } catch (const RemoteError&) {
    give_up(std::move(out));
    throw;
  }
}

/// Whole parts, so that Arrow passes them on without a copy, a few at a time in the background.
void ArrowFolder::send(LocalFile& file, const std::string& name, Outgoing& out,
                       const std::stop_token& stop) const {
  const StoreCall call = StoreCall::kUpload;
  for (int parts = 1;; ++parts) {
    check_stop(name, stop);
    auto part = get(call, place(name), arrow::AllocateResizableBuffer(kPart));
    const int64_t size = file.read(part->mutable_data(), kPart);
    check(call, place(name), part->Resize(size, false));
    check(name, out, out.stream->Write(std::shared_ptr<arrow::Buffer>(std::move(part))));
    if (size < kPart) return;
    if (parts % kPartsAtOnce == 0) check(name, out, out.stream->Flush());
  }
}

void ArrowFolder::check(const std::string& name, Outgoing& out, const arrow::Status& status) const {
  out.broken = !status.ok();
  check(StoreCall::kUpload, place(name), status);
}

/// Left to itself a stream would publish the part that it has.
void ArrowFolder::give_up(Outgoing out) const {
  if (is_s3(url_)) {
    static_cast<void>(out.stream->Abort());
    return;
  }
  // Google's has no way to abort. One that is broken publishes nothing; one that is sound would, in
  // its destructor: it is never destroyed (8 MiB, at the end of a run or when the local disk
  // fails).
  if (!out.broken) new Outgoing(std::move(out));
}

void ArrowFolder::download(const std::string& name, const std::string& local_file,
                           const std::stop_token& stop) {
  const Call under_way;
  check_stop(name, stop);
  const StoreCall call = StoreCall::kDownload;
  const auto files = connected(call);
  const auto stream = get(call, place(name), files->OpenInputStream(path(name)));
  try {
    AtomicFile file(local_file);
    for (bool more = true; more;) {
      check_stop(name, stop);
      const auto part = get(call, place(name), stream->Read(kPart));
      file.write(part->data(), static_cast<std::size_t>(part->size()));
      more = part->size() == kPart;
    }
    file.commit();
  } catch (const RemoteError&) {
    throw;
  } catch (const RunError& error) {
    throw RemoteError(RemoteFailure::kLocal, error.what());
  }
}

std::vector<RemoteEntry> ArrowFolder::list(const std::stop_token& stop) {
  const Call under_way;
  check_stop("", stop);
  arrow_fs::FileSelector selector;
  selector.base_dir = arrow_path(url_);
  const auto infos = connected(StoreCall::kList)->GetFileInfo(selector);
  std::vector<RemoteEntry> entries;
  if (!infos.ok()) {
    // A missing folder is an empty one; of a missing bucket it is the server that tells.
    const std::string text = infos.status().ToStringWithoutContextLines();
    const bool server_says = text.find("AWS Error") != std::string::npos ||
                             text.find("google::cloud") != std::string::npos;
    if (!server_says && text.find("No such file or directory") != std::string::npos) return entries;
    throw store_error(StoreCall::kList, url_, text);
  }
  for (const arrow_fs::FileInfo& info : *infos) {
    if (info.IsFile()) entries.push_back({info.base_name(), info.size()});
  }
  std::sort(entries.begin(), entries.end(),
            [](const RemoteEntry& a, const RemoteEntry& b) { return a.name < b.name; });
  return entries;
}

void ArrowFolder::remove(const std::string& name, const std::stop_token& stop) {
  const Call under_way;
  check_stop(name, stop);
  const auto status = connected(StoreCall::kRemove)->DeleteFile(path(name));
  if (status.ok()) return;
  const RemoteError error =
      store_error(StoreCall::kRemove, place(name), status.ToStringWithoutContextLines());
  if (error.failure() != RemoteFailure::kMissing) throw error;
}

}  // namespace
}  // namespace ddp::train

extern "C" __attribute__((visibility("default"))) ddp::train::RemoteFolder*
ddp_trainer_open_remote_folder(const std::string& url) {
  return new ddp::train::ArrowFolder(url);
}
