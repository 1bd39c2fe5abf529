#include "launcher/result_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "launcher/base/errors.h"
#include "launcher/base/messages.h"
#include "launcher/base/system/descriptors.h"
#include "launcher/base/system/memory_file.h"
#include "launcher/base/system/new_file.h"
#include "launcher/report/error_file.h"
#include "launcher/report/run_record.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

// An earlier run's result must not pass for this one's.
void remove_earlier_result(const std::string& path) {
  const auto refuse = [&](const std::string& why) {
    throw LaunchError(kExitUsage, fmt::format("--result-json={}: {}", path, why));
  };
  const auto slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  struct stat status {};
  const bool exists = ::lstat(path.c_str(), &status) == 0;
  // It would be replaced, not followed: run by root, even the machine's /dev/stdout.
  if (exists && S_ISLNK(status.st_mode)) refuse("is a symbolic link; give the file itself");
  if (exists && S_ISDIR(status.st_mode)) refuse("is a directory; give a file name");
  if (exists && !S_ISREG(status.st_mode)) refuse("is not a regular file; choose another path");
  if (::access(folder.c_str(), W_OK | X_OK) != 0 ||
      (::unlink(path.c_str()) != 0 && errno != ENOENT)) {
    refuse(error_text(errno) + "; choose a writable path");
  }
}

bool is_missing(const std::string& file) {
  return !file.empty() && ::access(file.c_str(), F_OK) != 0;
}

// By rename, so that no reader sees half of it. A device, pipe or link is written to instead: run
// by root, even the machine's /dev/null or /dev/stdout would be replaced. `reserve` is closed if no
// descriptor is left. Returns 0 or the error number.
int replace_file(const std::string& path, const std::string& text, Descriptor* reserve) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    const Descriptor file(::open(
        path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666));
    return file.get() < 0 ? errno : write_fully(file.get(), text);
  }
  std::string temporary;
  int fd = create_temporary_file(path, temporary);
  if (fd < 0 && errno == EMFILE && reserve) {
    reserve->reset();
    fd = create_temporary_file(path, temporary);
  }
  if (fd < 0) return errno;
  int error = write_fully(fd, text);
  if (::close(fd) != 0 && error == 0) error = errno;
  if (error == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) ::unlink(temporary.c_str());
  return error;
}

}  // namespace

ResultWriter::ResultWriter(std::string result_json, const Environment& environment)
    : result_json_(std::move(result_json)),
      enclosing_error_file_(value_of(environment, kErrorFile)),
      handover_(memory_file("")) {
  if (result_json_.empty()) return;
  remove_earlier_result(result_json_);
  reserve_ = Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

int ResultWriter::run(const std::function<int()>& body) {
  const auto record = [&](int exit_code, const char* error) {
    text_ = error_json(exit_code, error);
    hand_over();
    write_result_json(text_);
    write_fully(STDERR_FILENO, take_problems());
    write_to_folder();
  };
  try {
    return body();
  } catch (const LaunchError& error) {
    record(error.exit_code(), error.what());
    throw;
  } catch (const std::exception& error) {
    record(kExitFailed, error.what());
    throw;
  }
}

void ResultWriter::record(const RunResult& result, const std::string& run_id,
                          const std::string& host, int code) {
  text_ = result_json(result, run_id, host, code);
  hand_over();
}

std::function<void()> ResultWriter::files_write(const RunResult& result) {
  const bool passes_on = !enclosing_error_file_.empty() && !result.failures.empty();
  if (result_json_.empty() && !passes_on) return {};
  const ProcessFailure cause = passes_on ? result.failures.front() : ProcessFailure{};
  const int code = cause.exit.signal != 0 ? -cause.exit.signal : cause.exit.code;
  return [this, text = text_, file = cause.error_file, code] {
    write_result_json(text);
    pass_on(file, code);
  };
}

std::string ResultWriter::take_problems() {
  std::string lines;
  if (const int error = error_.exchange(0); error != 0) {
    lines = fmt::format("error: --result-json={}: {}; choose a writable path\n", result_json_,
                        error_text(error));
  }
  if (cause_is_lost_.exchange(false)) {
    lines += fmt::format("ddp-run: cannot write the cause to TORCHELASTIC_ERROR_FILE={}\n",
                         enclosing_error_file_);
  }
  return lines;
}

std::function<void()> ResultWriter::folder_write() const {
  return [folder = folder_, text = text_] {
    const std::string file = folder.result_file();
    // A full disk has been reported already.
    if (!file.empty()) replace_file(file, text, nullptr);
  };
}

void ResultWriter::hand_over() const {
  const int file = handover_.get();
  if (::ftruncate(file, 0) == 0 && ::lseek(file, 0, SEEK_SET) == 0) write_fully(file, text_);
}

void ResultWriter::take_over(int exit_code) {
  text_ = text_of(handover_.get());
  if (text_.empty())
    text_ = error_json(exit_code, "ddp-run's agent process ended without a result");
}

void ResultWriter::write_if_missing() {
  if (is_missing(result_json_)) replace_file(result_json_, text_, &reserve_);
  if (const std::string file = folder_.result_file(); is_missing(file))
    replace_file(file, text_, &reserve_);
}

void ResultWriter::write_result_json(const std::string& text) {
  if (!result_json_.empty()) error_ = replace_file(result_json_, text, &reserve_);
}

// As torchrun does: the enclosing launcher, or torch's `record`, reads the cause from there.
void ResultWriter::pass_on(const ErrorFile& cause, int code) {
  const std::string text = error_file_to_pass_on(cause, code);
  if (!text.empty() && replace_file(enclosing_error_file_, text, &reserve_) != 0)
    cause_is_lost_ = true;
}

}  // namespace ddp::launch
