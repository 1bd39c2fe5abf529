// Sharded snapshots in the folder of a run: each rank writes its shard, then rank 0 the index.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "trainer/runtime/error.h"
#include "trainer/runtime/files/atomic_file.h"
#include "trainer/snapshot/snapshot_folder.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;

std::string base_name(const std::string& file) { return fs::path(file).filename().string(); }

std::string beside(const std::string& path, const std::string& name) {
  return (fs::path(path).parent_path() / name).string();
}

/// Opens a shard. Nothing if it is missing, damaged or of another save. Throws UnreadableError.
std::unique_ptr<SafetensorsFile> shard_of(const ShardId& save, int rank, const std::string& path) {
  if (!file_exists(path)) return nullptr;
  try {
    auto file = std::make_unique<SafetensorsFile>(path);
    const auto id = shard_id(*file, path);
    if (!id || !id->same_save(save) || id->rank != rank) return nullptr;
    file->verify_header();
    return file;
  } catch (const UnreadableError&) {
    throw;
  } catch (const std::exception&) {
    return nullptr;
  }
}

}  // namespace

void SnapshotFolder::follow(std::string run_id, int64_t attempt) {
  run_id_ = std::move(run_id);
  attempt_ = attempt;
  step_at_start_ = step_there(*run_id_);
}

/// Also those that are being written, by their final names.
std::vector<std::string> SnapshotFolder::shard_files() const {
  std::vector<std::string> shards;
  for (std::string file : files_with(path_, ".step-")) {
    const auto temporary = file.rfind(".tmp.");
    if (temporary != std::string::npos) file.resize(temporary);
    if (stem_of_shard(base_name(file))) shards.push_back(file);
  }
  std::sort(shards.begin(), shards.end());
  shards.erase(std::unique(shards.begin(), shards.end()), shards.end());
  return shards;
}

/// The shards of every snapshot in the folder: of other runs, of damaged ones, and of those that a
/// user has renamed or copied to keep them. Throws if one of them is unknown.
std::set<std::string> SnapshotFolder::needed_shards() const {
  std::set<std::string> own{base_name(path_)};
  for (const auto& file : older_files()) own.insert(base_name(file));
  std::set<std::string> needed;
  for (const auto& file : files_next_to(path_)) {
    if (stem_of_shard(base_name(file))) continue;
    try {
      for (const auto& shard : shard_paths(file)) needed.insert(base_name(shard));
    } catch (const UnreadableError&) {
      if (file_exists(file)) throw;  // else it has just gone
    } catch (const std::exception&) {
      if (own.contains(base_name(file))) throw;  // else it is something else
    }
  }
  return needed;
}

/// What cannot be read may be another run's.
bool SnapshotFolder::is_our_shard(const std::string& file) const {
  try {
    const SafetensorsFile shard(file);
    const auto id = shard_id(shard, file);
    return id && id->run_id == run_id();
  } catch (const std::exception&) {
    return false;
  }
}

std::string SnapshotFolder::stem_for_shards(int64_t step) const {
  const auto needed = needed_shards();
  std::set<std::string> taken;
  for (const auto& file : shard_files()) {
    if (needed.contains(base_name(file)) || (file_exists(file) && !is_our_shard(file)))
      taken.insert(*stem_of_shard(base_name(file)));
  }
  const std::string usual = base_name(older_snapshot_path(path_, step));
  std::string stem = usual;
  for (int number = 2; taken.contains(stem); ++number) stem = fmt::format("{}-{}", usual, number);
  return stem;
}

void SnapshotFolder::write_shard(const ShardId& id, const std::string& stem,
                                 const std::vector<StatePiece>& pieces,
                                 const std::vector<TensorBytes>& bytes, const PublishObserver& at) {
  const std::string path = beside(path_, shard_name(stem, id.rank, id.ranks));
  check_not_superseded(id.run_id, id.step);
  try {
    publish_safetensors(path, "", shard_metadata(id, pieces), bytes, at,
                        [&](const SafetensorsFile& written) {
                          written.verify_header();
                          check_not_superseded(id.run_id, id.step);
                        });
  } catch (const SupersededError&) {
    throw;
  } catch (const std::exception&) {
    check_not_superseded(id.run_id, id.step);  // which takes the temporary file away
    throw;
  }
}

bool SnapshotFolder::has_all_shards(const ShardId& id, const std::string& stem) const try {
  for (int rank = 0; rank < id.ranks; ++rank) {
    if (!shard_of(id, rank, beside(path_, shard_name(stem, rank, id.ranks)))) return false;
  }
  return true;
} catch (const UnreadableError&) {
  return false;
}

void SnapshotFolder::publish_index(const SnapshotMeta& meta, const ShardId& id,
                                   const std::string& stem,
                                   const std::vector<LogicalTensor>& tensors,
                                   const PublishObserver& at) {
  std::vector<ShardEntry> shards;
  BoxesByName boxes;
  for (int rank = 0; rank < id.ranks; ++rank) {
    const std::string path = beside(path_, shard_name(stem, rank, id.ranks));
    const auto file = shard_of(id, rank, path);
    if (!file) {
      throw RunError(fmt::format(
          "{} is missing or of another save; trainer_config.snapshot_shards needs a folder that "
          "all ranks share",
          path));
    }
    shards.push_back({base_name(path), fs::file_size(path), file->require_metadata(kChecksumKey)});
    const auto of_shard = boxes_of(*file, path);
    for (std::size_t i = 0; i < of_shard.size(); ++i)
      boxes[name_of_key(file->tensors()[i].name)].push_back(of_shard[i]);
  }
  if (const auto error = cover_error(tensors, boxes); !error.empty())
    throw std::logic_error(fmt::format("the shards of step {}: {}", id.step, error));
  Metadata metadata = meta.to_metadata();
  metadata[kVersionKey] = std::to_string(kShardedVersion);
  metadata[kShardsKey] = shards_json(shards);
  metadata[kTensorsKey] = tensors_json(tensors);
  publish_by(meta, [&](const std::string& kept, const PublishCheck& check) {
    publish_safetensors(path_, kept, metadata, {}, at, check);
  });
  remove_orphans();
}

void SnapshotFolder::remove_orphans() const {
  try {
    auto orphans = shard_files();
    if (orphans.empty()) return;
    const auto needed = needed_shards();
    std::erase_if(orphans, [&](const auto& file) {
      return needed.contains(base_name(file)) || !is_our_shard(file);
    });
    // What was looked at is a later start's if this process was suspended meanwhile.
    if (present_manifest().attempt > attempt_) return;
    for (const auto& file : orphans) ::unlink(file.c_str());
  } catch (const std::exception& error) {
    log_.warning(
        fmt::format("shards that no snapshot may need any more stay for now: {}", error.what()));
  }
}

}  // namespace ddp::train
