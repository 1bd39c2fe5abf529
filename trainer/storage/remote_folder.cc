#include "trainer/storage/remote_folder.h"

#include "trainer/runtime/files/remote_path.h"
#include "trainer/storage/arrow_module.h"

namespace ddp::train {
namespace {

ArrowModuleEntry load_arrow(const std::string& url) {
  void* const entry = arrow_module_entry(kArrowModuleEntry, url);
  if (entry != nullptr) return reinterpret_cast<ArrowModuleEntry>(entry);
  throw RunError(url +
                 ": this trainer was built without object stores; ./scripts/setup.sh "
                 "--object-stores, then build again");
}

/// A folder's name is sound when a name in it is.
void check_name(const std::string& url) {
  try {
    split_remote(url + "/name");
  } catch (const UserError&) {
    throw UserError(url + ": not a folder name; write s3://bucket/folder");
  }
}

}  // namespace

std::unique_ptr<RemoteFolder> open_remote_folder(const std::string& url) {
  check_name(url);
  return std::unique_ptr<RemoteFolder>(load_arrow(url)(url));
}

}  // namespace ddp::train
