// A folder in TMPDIR that goes with its owner.
#pragma once

#include <string>
#include <string_view>

namespace ddp::train {

class TemporaryFolder {
 public:
  /// `content` is what it is for. Throws UserError, naming TMPDIR, if it cannot be created.
  explicit TemporaryFolder(std::string_view content);
  /// Removes it with all that is in it.
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  /// Removes those that there are: for a process that ends without their destructors.
  static void remove_all();

 private:
  std::string path_;
};

}  // namespace ddp::train
