// The safetensors container: 8-byte little-endian header length, JSON header, raw tensors. Contains
// no code. Format: https://github.com/huggingface/safetensors#format
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ddp::train {

/// One tensor of a container: contiguous, little-endian bytes, not owned.
struct TensorBytes {
  std::string name;
  std::string dtype;  ///< "F32", "F16", "BF16", "I64", "U8", ...
  std::vector<int64_t> shape;
  const std::byte* data = nullptr;
  std::size_t size = 0;  ///< Bytes.
};

/// Bytes per element of a dtype; 0 if it is unknown.
std::size_t element_bytes(std::string_view dtype);
/// Shape times element size; nullopt if that overflows or a dimension is negative.
std::optional<std::size_t> bytes_of_shape(const std::vector<int64_t>& shape,
                                          std::string_view dtype);

using Metadata = std::map<std::string, std::string>;

/// Metadata key of the checksum over length and header, taken with its own digits as zeros: 32 hex
/// digits of XXH3-128 (https://xxhash.com). The header holds the digest of each tensor under
/// kDigestsKey, a JSON object, so a flipped bit anywhere is found, and named.
inline constexpr const char* kChecksumKey = "checksum";
inline constexpr const char* kDigestsKey = "tensor_digests";

/// Everything before the tensors' bytes: length and header with both checksums filled in, padded
/// with spaces to at least `capacity` bytes.
std::string safetensors_front(Metadata metadata, const std::vector<TensorBytes>& tensors,
                              std::size_t capacity = 0);

/// Phases of publishing, for fault injection.
enum class PublishPhase { kWriting, kBeforeRename, kPublished };
using PublishObserver = std::function<void(PublishPhase)>;

class SafetensorsFile;
/// Receives the complete file as a reader sees it, before it gets its name. If it throws, the file
/// is removed and the current one stays.
using PublishCheck = std::function<void(const SafetensorsFile&)>;

/// Writes the container to `path` by AtomicFile, keeping the current file as `keep_previous_as`.
/// Throws RunError, and any exception of `check`.
void publish_safetensors(
    const std::string& path, const std::string& keep_previous_as, Metadata metadata,
    const std::vector<TensorBytes>& tensors, const PublishObserver& at = [](PublishPhase) {},
    const PublishCheck& check = [](const SafetensorsFile&) {});

/// Whether the file starts like a safetensors file, with a length and `{`, whatever follows.
bool begins_as_safetensors(const std::string& path);

/// A container mapped read-only. Lengths and offsets in the file are checked against its size
/// before use.
class SafetensorsFile {
 public:
  /// Throws UserError if the file cannot be read, RunError if it is incomplete: one line with path
  /// and reason.
  explicit SafetensorsFile(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const Metadata& metadata() const { return metadata_; }
  /// In the order of their bytes in the file.
  const std::vector<TensorBytes>& tensors() const { return tensors_; }
  /// Returns null if there is none of that name.
  const TensorBytes* find(const std::string& name) const;
  /// Throws RunError with the path and `key` if it is missing.
  const std::string& require_metadata(const std::string& key) const;

  /// Throws RunError naming the tensor if a checksum is missing or does not match.
  void verify_checksum() const;
  /// The same for length and header only: metadata() can be trusted, the tensors are not read.
  void verify_header() const;

 private:
  void map_file();
  void require_readable(const std::byte* begin, std::size_t bytes) const;
  void parse_header();
  void take_metadata(const nlohmann::json& entry);
  void take_tensor(const std::string& name, const nlohmann::json& entry);
  std::string front_without_checksum() const;
  void verify_digests() const;

  std::string path_;
  const std::byte* mapping_ = nullptr;
  std::size_t size_ = 0;
  std::size_t header_size_ = 0;
  Metadata metadata_;
  std::vector<TensorBytes> tensors_;
  std::unordered_map<std::string_view, const TensorBytes*> by_name_;  ///< Points into tensors_.
};

/// Lets the system take the memory of a tensor that has been read; it is read again when needed.
void drop_pages(const TensorBytes& tensor);

}  // namespace ddp::train
