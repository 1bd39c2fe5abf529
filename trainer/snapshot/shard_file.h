// The files of a sharded snapshot: `<name>.step-N.R-of-W`, one per rank, and the index that lists
// them. A shard is a safetensors file of boxes, whose positions are in the header as
// torch.distributed.checkpoint's HuggingFaceStorageReader expects them. The index is a safetensors
// file without tensors: the snapshot's metadata and the lists of its tensors and shards.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/snapshot/state_piece.h"
#include "trainer/tensorfile/safetensors.h"

namespace ddp::train {

/// Metadata keys: a shard's identity (JSON), an index's tensors and shards (JSON lists).
inline constexpr const char* kShardKey = "shard";
inline constexpr const char* kShardsKey = "shards";
inline constexpr const char* kTensorsKey = "tensors";
/// torch's key for the positions of boxes.
inline constexpr const char* kDcpKey = "DCP_SHARDING_INFO";
inline constexpr const char* kDcpVersionKey = "DCP_VERSION";

/// Identifies the save that a shard belongs to, and its part of it.
struct ShardId {
  std::string run_id;
  int64_t attempt = 0;  ///< Start of the run.
  int64_t step = 0;
  int rank = 0;
  int ranks = 1;

  /// Whether both were written by one save.
  bool same_save(const ShardId& other) const {
    return run_id == other.run_id && attempt == other.attempt && step == other.step &&
           ranks == other.ranks;
  }
};

/// "step 8, rank 1 of 2"
std::string text_of(const ShardId& id);

/// A shard's entry in the index.
struct ShardEntry {
  std::string file;      ///< Without the folder, which is the index's.
  uint64_t bytes = 0;    ///< Size of the file.
  std::string checksum;  ///< Checksum of the header, which holds the tensors' digests.
};

/// Whether `text` is a number as names of files have it.
bool all_digits(std::string_view text);

/// `<stem>.R-of-W`
std::string shard_name(const std::string& stem, int rank, int ranks);
/// Returns the stem of a shard's name; nullopt if `name` is not one.
std::optional<std::string> stem_of_shard(const std::string& name);

/// Returns a shard's metadata, without digests.
Metadata shard_metadata(const ShardId& id, const std::vector<StatePiece>& pieces);
/// Returns nullopt if the file is not a shard. Throws RunError if it is a damaged one.
std::optional<ShardId> shard_id(const SafetensorsFile& file, const std::string& path);
/// Returns the box of each tensor in `shard`. Throws RunError naming the path.
std::vector<Box> boxes_of(const SafetensorsFile& shard, const std::string& path);

std::string tensors_json(const std::vector<LogicalTensor>& tensors);
std::vector<LogicalTensor> tensors_from_json(const std::string& json, const std::string& path);
std::string shards_json(const std::vector<ShardEntry>& shards);
/// Throws RunError naming `path`, also for a name that leads out of the folder.
std::vector<ShardEntry> shards_from_json(const std::string& json, const std::string& path);

/// Returns the paths of an index's shards; none for a single file. Throws UserError if it cannot
/// be read, RunError if it is damaged.
std::vector<std::string> shard_paths(const std::string& snapshot);

}  // namespace ddp::train
