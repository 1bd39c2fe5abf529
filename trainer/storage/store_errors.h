// What the storage libraries say, in one line and with what can be done about it.
#pragma once

#include <string>
#include <string_view>

#include "trainer/storage/remote_folder.h"

namespace ddp::train {

enum class StoreCall { kUpload, kDownload, kList, kRemove };

/// `place` is the object or folder as the user wrote it, `text` the library's message (an AWS or
/// google::cloud error inside a sentence). An error that is not known counts as kAway: it is tried
/// again.
RemoteError store_error(StoreCall call, const std::string& place, std::string_view text);

}  // namespace ddp::train
