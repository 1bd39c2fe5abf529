// DDP_SHM_DIR: a folder in memory that lives as long as the job, over all its restarts.
#pragma once

#include <string>

namespace ddp::launch {

class MemoryFolder {
 public:
  static constexpr const char* kPlace = "/dev/shm";

  /// Makes `place`/ddp-run-XXXXXX, open to this user only, after it has removed those that dead
  /// jobs of this user have left there. path() is empty when `place` is no writable folder.
  explicit MemoryFolder(const std::string& place);
  /// Its path as far as it is known before it is made; empty when it cannot be.
  static std::string planned(const std::string& place);
  ~MemoryFolder();
  MemoryFolder(const MemoryFolder&) = delete;
  MemoryFolder& operator=(const MemoryFolder&) = delete;

  const std::string& path() const { return path_; }
  /// With all that is in it. The destructor leaves it: several processes share one folder.
  void remove() const;

 private:
  std::string path_;
  int lock_ = -1;  // held by every process of the job that may remove the folder
};

}  // namespace ddp::launch
