// Snapshots as the tests compare them, read without LibTorch.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/e2e/job.h"

namespace ddp::test {

/// Names of the tensors and metadata in which two snapshots, in one file or in shards, differ, byte
/// by byte; the resolved configuration, the checksums and the number of ranks may differ. Also
/// fails when one of them is damaged.
Words differences(const std::string& snapshot, const std::string& other);
/// Differences in the model, the optimizer and the averaged weights: what a step without an update
/// leaves as it was.
Words changed_tensors(const std::string& snapshot, const std::string& other);

/// The files of the shards that a snapshot's index names; none for a single file.
Words shards_of(const std::string& snapshot);

/// Copies a snapshot with its shards.
void copy_snapshot(const std::string& from, const std::string& to);

/// The largest distance between two values of a parameter (tensors named model.*).
double largest_parameter_distance(const std::string& snapshot, const std::string& other);

/// Whether the file is a whole snapshot with the right checksum.
bool is_whole(const std::string& snapshot);

/// A copy with other metadata and a checksum that fits it.
void rewrite_metadata(const std::string& snapshot, const std::string& key,
                      const std::string& value);

/// What `trainer inspect --json` says.
nlohmann::json inspect(const Workspace& place, const std::string& snapshot);
std::string content_sha256(const Workspace& place);

std::string read_bytes(const std::string& file);

}  // namespace ddp::test
