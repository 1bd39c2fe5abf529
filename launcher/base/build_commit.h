// The commit that ddp-run was built from; the build writes it to a separate file.
#pragma once

namespace ddp::launch {

/// "" if the sources were not in a git repository; "0f4dbc18cd-dirty" if they had changes.
extern const char* const kBuildCommit;

}  // namespace ddp::launch
