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
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "launcher/base/errors.h"
#include "launcher/base/messages.h"
#include "launcher/base/system/descriptors.h"
#include "launcher/base/system/new_file.h"
#include "launcher/base/system/regular_file.h"
#include "launcher/rendezvous/wire/control_messages.h"
#include "launcher/rendezvous/wire/endpoint_lookup.h"

namespace ddp::launch {
namespace {

using Json = nlohmann::json;

constexpr int kVersion = 1;
constexpr std::size_t kLongestFile = 64 << 10;
constexpr std::size_t kMostPlaces = kMaxSuccessors + 1;
constexpr long long kLastEpoch = LLONG_MAX / 2;
constexpr int kDeepest = 4;

void require(bool condition, const char* what) {
  if (!condition) throw std::invalid_argument(what);
}

Place place_of(const Json& object) {
  require(object.at("port").is_number_integer(), "port");
  const auto port = object.at("port").get<long long>();
  require(port > 0 && port <= 65535, "port");
  const Place place{object.at("address").get<std::string>(), static_cast<int>(port)};
  require(parse_address(place.address, place.port).has_value(), "address");
  return place;
}

std::string text_of(const LastMembers& members, const std::string& run_id,
                    const std::string& endpoints) {
  auto places = Json::array();
  for (const Place& one : members.places) {
    if (places.size() < kMostPlaces)
      places.push_back({{"address", one.address}, {"port", one.port}});
  }
  const Json file{{"version", kVersion},      {"run_id", run_id},       {"endpoints", endpoints},
                  {"member", members.member}, {"epoch", members.epoch}, {"alone", members.alone},
                  {"members", places}};
  return file.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

void sync_folder_of(const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path();
  const Descriptor fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() >= 0) ::fsync(fd.get());
}

}  // namespace

LastMembers parse_members(std::string_view text, const std::string& run_id,
                          const std::string& endpoints) {
  const auto depth = [](int level, Json::parse_event_t, Json&) {
    require(level <= kDeepest, "too deep");
    return true;
  };
  const Json file = Json::parse(text, depth);
  require(file.at("version").get<int>() == kVersion, "version");
  if (file.at("run_id") != run_id || file.at("endpoints") != endpoints) return {};
  LastMembers members{.member = file.value("member", "")};
  require(file.at("epoch").is_number_integer(), "epoch");
  members.epoch = file.at("epoch").get<long long>();
  require(members.epoch >= -1 && members.epoch <= kLastEpoch, "epoch");
  members.alone = file.value("alone", false);
  const Json& places = file.at("members");
  require(places.is_array() && places.size() <= kMostPlaces, "members");
  for (const Json& one : places) members.places.push_back(place_of(one));
  return members;
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
    require(file.problem == FileProblem::kNone, "unreadable");
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
  std::string text = text_of(members, run_id_, endpoints_);
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
