#include "launcher/rendezvous/follow/members_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <filesystem>
#include <utility>

#include "launcher/base/errors.h"
#include "launcher/base/messages.h"
#include "launcher/base/system/descriptors.h"
#include "launcher/base/system/new_file.h"
#include "launcher/base/system/regular_file.h"
#include "launcher/rendezvous/wire/control_fields.h"
#include "launcher/rendezvous/wire/control_messages.h"
#include "launcher/rendezvous/wire/endpoint_lookup.h"

namespace ddp::launch {
namespace {

constexpr int kVersion = 1;
constexpr std::size_t kLongestFile = 64 << 10;
constexpr std::size_t kMostPlaces = kMaxSuccessors + 1;
constexpr long long kLastEpoch = LLONG_MAX / 2;
constexpr int kDeepest = 4;

struct Content {
  int version = kVersion;
  std::string run_id;
  std::string endpoints;
  LastMembers members;
};

void sync_folder_of(const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path();
  const Descriptor fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() >= 0) ::fsync(fd.get());
}

}  // namespace

static void fields(Fields& io, Place& place) {
  io.text("address", place.address);
  io.number("port", place.port, 1, 65535);
}

static void fields(Fields& io, Content& file) {
  io.number("version", file.version, kVersion, kVersion);
  io.text("run_id", file.run_id);
  io.text("endpoints", file.endpoints);
  io.text("member", file.members.member);
  io.number("epoch", file.members.epoch, -1, kLastEpoch);
  io.flag("alone", file.members.alone);
  io.list("members", file.members.places, kMostPlaces);
}

LastMembers parse_members(std::string_view text, const std::string& run_id,
                          const std::string& endpoints) {
  const ControlJson json = parse_json(text, kDeepest);
  Fields reader = Fields::reader(json);
  Content file;
  fields(reader, file);
  for (const Place& one : file.members.places)
    Fields::require(parse_address(one.address, one.port).has_value(), "address");
  return file.run_id == run_id && file.endpoints == endpoints ? file.members : LastMembers{};
}

MembersFile::MembersFile(std::string path, std::string run_id,
                         const std::vector<Endpoint>& endpoints)
    : path_(std::move(path)), run_id_(std::move(run_id)), endpoints_(endpoints_text(endpoints)) {}

bool MembersFile::lock(Descriptor file) {
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) return false;
  lock_ = std::move(file);
  return true;
}

// This node's earlier agent may have been killed a moment ago, and the kernel not be done with it.
bool MembersFile::becomes_ours() {
  constexpr int kTries = 50;
  constexpr int kPauseMs = 20;
  for (int i = 0; i < kTries; ++i) {
    if (is_ours()) return true;
    ::poll(nullptr, 0, kPauseMs);
  }
  return false;
}

// Another agent of this machine may use it, which then keeps it.
bool MembersFile::is_ours() {
  struct stat held {};
  struct stat there {};
  if (::fstat(lock_.get(), &held) == 0 && ::lstat(path_.c_str(), &there) == 0)
    return held.st_ino == there.st_ino && held.st_dev == there.st_dev;
  Descriptor file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
  return file.get() < 0 || lock(std::move(file));
}

LastMembers MembersFile::read() {
  if (!path_.empty() && !becomes_ours()) path_.clear();
  if (path_.empty()) return {};
  const FileText file = read_regular_file(path_, kLongestFile, Links::kRefuse);
  if (file.problem == FileProblem::kAbsent) return {};
  try {
    Fields::require(file.problem == FileProblem::kNone, "unreadable");
    return parse_members(file.text, run_id_, endpoints_);
  } catch (const std::exception&) {
    note_ = fmt::format(
        "the file of the last round's nodes, {}, is damaged and ignored: this node cannot ask them "
        "whether the job is still running",
        path_);
    return {};
  }
}

bool MembersFile::replace(const std::string& text) {
  std::string name;
  const int fd = create_temporary_file(path_, name);
  Descriptor file(fd);
  if (fd < 0) return false;
  ::fchmod(fd, 0600);
  const bool well = lock(std::move(file)) && write_fully(fd, text) == 0 && ::fsync(fd) == 0 &&
                    ::rename(name.c_str(), path_.c_str()) == 0;
  const int error = errno;
  if (!well) ::unlink(name.c_str());
  if (well) sync_folder_of(path_);
  errno = error;
  return well;
}

void MembersFile::write(const LastMembers& members) {
  if (path_.empty()) return;
  Content content{.run_id = run_id_, .endpoints = endpoints_, .members = members};
  Fields writer = Fields::writer();
  fields(writer, content);
  std::string text =
      writer.written().dump(-1, ' ', false, ControlJson::error_handler_t::replace) + "\n";
  if (text == written_) return;
  if (!is_ours()) return path_.clear();
  if (replace(text)) {
    written_ = std::move(text);
    return;
  }
  note_ =
      fmt::format("cannot write {}: {}; if this node is started again, it will not know the others",
                  path_, error_text(errno));
  remove();  // an older round's would be a wrong vote
  path_.clear();
}

void MembersFile::remove() {
  if (path_.empty()) return;
  ::unlink(path_.c_str());
  written_.clear();
}

}  // namespace ddp::launch
