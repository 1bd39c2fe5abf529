#include "launcher/cluster/user_token.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <filesystem>

#include "launcher/base/errors.h"
#include "launcher/base/messages.h"
#include "launcher/base/random_hex.h"
#include "launcher/base/system/descriptors.h"
#include "launcher/base/system/new_file.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

// f_type of statfs(2), from linux/magic.h and the file systems' own headers.
constexpr std::array<std::uint32_t, 11> kShared{
    0x00006969,  // NFS
    0xFF534D42,  // CIFS
    0xFE534D42,  // SMB 2 and later
    0x0BD00BD0,  // Lustre
    0x47504653,  // GPFS, Spectrum Scale
    0x00C36400,  // Ceph
    0x19830326,  // BeeGFS
    0xAAD7AAEA,  // PanFS
    0x5346414F,  // AFS
    0x01161970,  // GFS2
    0x7461636F,  // OCFS2
};

[[noreturn]] void cannot_make(const std::string& path, int error) {
  throw LaunchError(kExitFailed,
                    fmt::format("cannot make the token {}: {}; give --rdzv-token-file=FILE", path,
                                error_text(error)));
}

}  // namespace

std::string user_token_file(const Environment& environment) {
  const std::string config = value_of(environment, "XDG_CONFIG_HOME");
  const std::string home = value_of(environment, "HOME");
  if (config.starts_with('/')) return config + "/ddp-run/rdzv-token";
  return home.starts_with('/') ? home + "/.config/ddp-run/rdzv-token" : "";
}

bool is_on_shared_file_system(const std::string& path) {
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  struct statfs status {};
  while (::statfs(folder.c_str(), &status) != 0) {
    if (errno != ENOENT || folder == folder.parent_path()) return false;
    folder = folder.parent_path();
  }
  return std::find(kShared.begin(), kShared.end(), static_cast<std::uint32_t>(status.f_type)) !=
         kShared.end();
}

// By a link, which is atomic on NFS, too: the file appears complete or not at all.
void make_user_token(const std::string& path) {
  if (::access(path.c_str(), F_OK) == 0) return;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  std::filesystem::create_directories(folder.parent_path(), error);
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) cannot_make(path, errno);
  const std::string token = random_hex(32) + "\n";
  std::string name;
  const Descriptor file(create_temporary_file(path, name));
  if (file.get() < 0) cannot_make(path, errno);
  int problem = ::fchmod(file.get(), 0600) == 0 ? 0 : errno;
  if (problem == 0) problem = write_fully(file.get(), token);
  if (problem == 0 && ::fsync(file.get()) != 0) problem = errno;
  if (problem == 0 && ::link(name.c_str(), path.c_str()) != 0 && errno != EEXIST) problem = errno;
  ::unlink(name.c_str());
  if (problem != 0) cannot_make(path, problem);
}

}  // namespace ddp::launch
