// Resolves a path: a local file, or an object in a store (`s3://bucket/key`, `gs://bucket/key`).
#pragma once

#include <string>
#include <string_view>

namespace ddp::train {

/// Whether `path` starts with s3://, gs:// or gcs://. Does not check the rest.
bool is_remote(std::string_view path);

/// An object split at its last '/': `s3://bucket/runs/7/snapshot.pt` is folder
/// `s3://bucket/runs/7` and name `snapshot.pt`.
struct RemotePath {
  std::string folder;  ///< For open_remote_folder(); never ends in '/'.
  std::string name;
};

/// Throws UserError with the right form if bucket or object name is missing or a part of the key is
/// empty, `.` or `..`.
RemotePath split_remote(const std::string& path);

/// `path` for system calls: `file:///a/b` and `file://localhost/a/b` become `/a/b`
/// (%XX decoded), a path without a scheme stays. Throws UserError for another host and for any
/// other scheme, s3:// and gs:// included.
std::string local_path(const std::string& path);

}  // namespace ddp::train
