// Whole tensors of a snapshot, wherever their bytes are: in one file, or in the shards of an index.
// Files are mapped, and only what is read is loaded.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trainer/snapshot/shard_file.h"
#include "trainer/snapshot/state_piece.h"
#include "trainer/tensorfile/safetensors.h"

namespace ddp::train {

/// Opening reads headers only: neither existence nor content of an index's shards is checked before
/// they are needed. Used by one thread at a time.
class SavedTensors {
 public:
  /// A single file or an index. Throws as SafetensorsFile(), RunError for a damaged index.
  explicit SavedTensors(const std::string& path);
  /// Shards of one save without an index, such as copies in memory, whose headers also hold
  /// the snapshot's metadata and the list of its tensors. Throws RunError if they are not
  /// complete.
  explicit SavedTensors(const std::vector<std::string>& shards);

  const Metadata& metadata() const { return front_->metadata(); }
  const std::string& require_metadata(const std::string& key) const {
    return front_->require_metadata(key);
  }
  /// In the order of the state.
  const std::vector<LogicalTensor>& tensors() const { return tensors_; }
  /// Returns null if there is none of that name.
  const LogicalTensor* find(const std::string& name) const;
  /// Empty for a single file.
  const std::vector<ShardEntry>& shards() const { return shards_; }

  /// Passes `bytes` bytes of a row-major tensor, from its byte `first` on, to `take` in order
  /// and without a copy. Throws RunError if a shard is missing or was not saved with the
  /// others.
  using Take = std::function<void(const std::byte*, std::size_t)>;
  void read(const LogicalTensor& tensor, std::size_t first, std::size_t bytes,
            const Take& take) const;

  /// As SafetensorsFile::verify_checksum(), for all files; also checks that the shards were saved
  /// together and hold each element once.
  void verify_checksum() const;
  /// Verifies the header of the single file or the index.
  void verify_header() const { front_->verify_header(); }

 private:
  struct Stored {
    Box box;
    const TensorBytes* bytes = nullptr;
  };
  struct Place {
    const std::byte* data = nullptr;
    std::size_t bytes = 0;  // contiguous bytes, in the file as in the tensor
  };

  void open_shards() const;
  void check_shard(const SafetensorsFile& file, const std::string& path,
                   const ShardEntry& entry) const;
  void place_boxes() const;
  Place place_of(const LogicalTensor& tensor, std::size_t byte) const;

  std::string path_;
  std::unique_ptr<SafetensorsFile> front_;  // the single file, the index, or the first shard
  std::vector<LogicalTensor> tensors_;
  std::vector<ShardEntry> shards_;
  std::map<std::string, std::size_t> by_name_;

  mutable std::vector<std::unique_ptr<SafetensorsFile>> files_;  // of the shards, once opened
  mutable std::map<std::string, std::vector<Stored>> boxes_;
};

/// Bytes of a logical tensor.
std::size_t bytes_of(const LogicalTensor& tensor);

}  // namespace ddp::train
