#include "launcher/base/error_file.h"

#include <sys/stat.h>

#include <utility>

namespace ddp::launch {
namespace {

constexpr std::size_t kLargestErrorFile = 4 << 20;  // bytes

long long write_time(const std::string& path) {
  struct stat status {};
  if (path.empty() || ::stat(path.c_str(), &status) != 0) return ErrorFile::kNever;
  return status.st_mtim.tv_sec * 1'000'000'000LL + status.st_mtim.tv_nsec;
}

FileText read_path(const std::string& path) {
  return path.empty() ? FileText{FileProblem::kAbsent, ""}
                      : read_regular_file(path, kLargestErrorFile, Links::kFollow);
}

}  // namespace

ErrorFile ErrorFile::to_be_read(std::string path) {
  ErrorFile file(std::move(path));
  if (!file.path.empty()) file.contents = std::make_shared<Contents>();
  return file;
}

void ErrorFile::read() const {
  if (is_read()) return;
  contents->written = write_time(path);
  contents->file = read_path(path);
  contents->read = true;
}

// A file that was not there yet may have been written by a child of the worker since.
FileText ErrorFile::text() const {
  if (!is_read()) return {FileProblem::kUnanswered, ""};
  return was_found() ? contents->file : read_path(path);
}

long long ErrorFile::written() const {
  if (!is_read()) return kNever;
  return was_found() ? contents->written : write_time(path);
}

}  // namespace ddp::launch
