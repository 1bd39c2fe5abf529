// Tells when a file is written for the first time, through inotify; once for each call of watch().
#pragma once

#include <map>
#include <string>

namespace ddp::launch {

class FirstWrites {
 public:
  FirstWrites();
  ~FirstWrites();
  FirstWrites(const FirstWrites&) = delete;
  FirstWrites& operator=(const FirstWrites&) = delete;

  /// Readable when there is something to tell; -1 where the system has no inotify left to give.
  int fd() const { return fd_; }
  /// The file need not exist yet, its folder must. A replacement by rename counts as a write. Other
  /// files that appear in the folder may be told of, too.
  void watch(const std::string& file);
  /// How many watches it keeps in mind.
  std::size_t size() const { return watches_.size(); }
  /// Watches nothing any more.
  void forget_all();
  /// Forgets what fd() was readable for.
  void drain() const;

 private:
  void add(const std::string& path, unsigned events);

  int fd_;
  std::map<std::string, int> watches_;  // by path: each of them may be watched again and again
};

}  // namespace ddp::launch
