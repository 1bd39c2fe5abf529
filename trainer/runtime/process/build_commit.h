// The commit that trainer was built from; the build writes it to a separate file.
#pragma once

namespace ddp::train {

/// "" if the sources were not in a git repository; "0f4dbc18cd-dirty" if they had changes.
extern const char* const kBuildCommit;

}  // namespace ddp::train
