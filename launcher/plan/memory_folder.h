// DDP_SHM_DIR: a folder in memory that lives as long as the job, across restarts.
#pragma once

#include <string>

#include "launcher/base/system/descriptors.h"

namespace ddp::launch {

class MemoryFolder {
 public:
  static constexpr const char* kPlace = "/dev/shm";

  /// Creates `place`/ddp-run-XXXXXX, accessible to this user only, after removing those left by the
  /// user's dead jobs. path() is empty if `place` is not a writable folder.
  explicit MemoryFolder(const std::string& place);
  /// Returns the path as far as it is known in advance; empty if it could not be created.
  static std::string planned(const std::string& place);

  const std::string& path() const { return path_; }
  /// Removes the folder with its contents. The destructor does not, as several processes share it.
  void remove() const;

 private:
  std::string path_;
  Descriptor lock_;  // held by every process of the job that may remove the folder
};

}  // namespace ddp::launch
