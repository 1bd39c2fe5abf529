// Reads untrusted metadata files: config.json, tokenizer.json, an index, a manifest.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ddp::train {

/// More than any configuration, template or index of published models has.
inline constexpr uint64_t kMostMetadataBytes = uint64_t{16} << 20U;

/// Returns the whole content. Opens only regular files, as a FIFO would block and a device may
/// never end. Returns nullopt, with the reason in errno, if the file cannot be opened. Throws
/// UserError if it is not a regular file, has more than `most` bytes, or cannot be read.
std::optional<std::string> read_small_file(const std::string& path,
                                           uint64_t most = kMostMetadataBytes);
/// The same for a file that need not exist: nullopt if it does not. Throws UserError if it exists
/// and cannot be read.
std::optional<std::string> read_file_if_present(const std::string& path);

}  // namespace ddp::train
