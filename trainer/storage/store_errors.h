// Turns storage library errors into one line with a fix.
#pragma once

#include <string>
#include <string_view>

#include "trainer/storage/remote_folder.h"

namespace ddp::train {

enum class StoreCall { kUpload, kDownload, kList, kRemove };

/// `place` is the object or folder as the user wrote it, `text` the library's message (an AWS or
/// google::cloud error inside a sentence). Unknown errors count as kAway and are retried.
RemoteError store_error(StoreCall call, const std::string& place, std::string_view text);

}  // namespace ddp::train
