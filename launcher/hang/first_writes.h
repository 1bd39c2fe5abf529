// Reports a file's first write through inotify, once per call of watch().
#pragma once

#include <map>
#include <string>

#include "launcher/base/system/descriptors.h"

namespace ddp::launch {

class FirstWrites {
 public:
  FirstWrites();

  /// Readable when there is something to report; -1 if no inotify instance is available.
  int fd() const { return fd_.get(); }
  /// Watches a file, which need not exist yet, unlike its folder. A replacement by rename counts as
  /// a write. Writes to other files in the folder may be reported as well.
  void watch(const std::string& file);
  /// Number of active watches.
  std::size_t size() const { return watches_.size(); }
  /// Removes all watches.
  void forget_all();
  /// Discards pending notifications.
  void drain() const;

 private:
  void add(const std::string& path, unsigned events);

  Descriptor fd_;
  std::map<std::string, int> watches_;  // by path
};

}  // namespace ddp::launch
