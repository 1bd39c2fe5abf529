#include "trainer/snapshot/shard_file.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "trainer/runtime/error.h"
#include "trainer/snapshot/training_state.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

constexpr const char* kOffsetsKey = "saved_offsets";

/// Runs `read`; what it finds wrong becomes damage of the file.
template <typename Read>
auto damaged_unless(const std::string& path, const char* what, const Read& read) {
  try {
    return read();
  } catch (const nlohmann::json::exception&) {
    throw RunError(
        fmt::format("{}: {} in its header cannot be read: the file is damaged", path, what));
  }
}

}  // namespace

bool all_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

std::string text_of(const ShardId& id) {
  return fmt::format("step {}, rank {} of {}", id.step, id.rank, id.ranks);
}

std::string shard_name(const std::string& stem, int rank, int ranks) {
  return fmt::format("{}.{}-of-{}", stem, rank, ranks);
}

std::optional<std::string> stem_of_shard(const std::string& name) {
  const auto dot = name.rfind('.');
  if (dot == std::string::npos) return std::nullopt;
  const std::string_view part = std::string_view(name).substr(dot + 1);
  const auto of = part.find("-of-");
  if (of == std::string_view::npos || !all_digits(part.substr(0, of)) ||
      !all_digits(part.substr(of + 4)))
    return std::nullopt;
  return name.substr(0, dot);
}

Metadata shard_metadata(const ShardId& id, const std::vector<StatePiece>& pieces) {
  OrderedJson places = OrderedJson::object();
  for (const auto& piece : pieces) places[piece.key()] = {{kOffsetsKey, piece.box.offsets}};
  const OrderedJson shard = {{"run", id.run_id},
                             {"attempt", id.attempt},
                             {"step", id.step},
                             {"rank", id.rank},
                             {"ranks", id.ranks}};
  return {{"format", "pt"},
          {kShardKey, shard.dump()},
          {kDcpKey, places.dump()},
          {kDcpVersionKey, "1.0"}};
}

std::optional<ShardId> shard_id(const SafetensorsFile& file, const std::string& path) {
  const auto found = file.metadata().find(kShardKey);
  if (found == file.metadata().end()) return std::nullopt;
  return damaged_unless(path, kShardKey, [&] {
    const OrderedJson json = OrderedJson::parse(found->second);
    return ShardId{json.at("run").get<std::string>(), json.at("attempt").get<int64_t>(),
                   json.at("step").get<int64_t>(), json.at("rank").get<int>(),
                   json.at("ranks").get<int>()};
  });
}

std::vector<Box> boxes_of(const SafetensorsFile& shard, const std::string& path) {
  return damaged_unless(path, kDcpKey, [&] {
    const OrderedJson places = OrderedJson::parse(shard.require_metadata(kDcpKey));
    std::vector<Box> boxes;
    for (const auto& tensor : shard.tensors()) {
      boxes.push_back(
          {places.at(tensor.name).at(kOffsetsKey).get<std::vector<int64_t>>(), tensor.shape});
    }
    return boxes;
  });
}

ShardToSave ShardToSave::without_values() const {
  ShardToSave copy = *this;
  for (auto& piece : copy.pieces) piece.parts = std::vector<torch::Tensor>(piece.parts.size());
  return copy;
}

std::string tensors_json(const std::vector<LogicalTensor>& tensors) {
  OrderedJson list = OrderedJson::array();
  for (const auto& tensor : tensors)
    list.push_back({{"name", tensor.name}, {"dtype", tensor.dtype}, {"shape", tensor.shape}});
  return list.dump();
}

std::vector<LogicalTensor> tensors_from_json(const std::string& json, const std::string& path) {
  return damaged_unless(path, kTensorsKey, [&] {
    std::vector<LogicalTensor> tensors;
    for (const OrderedJson& entry : OrderedJson::parse(json)) {
      tensors.push_back({entry.at("name").get<std::string>(), entry.at("dtype").get<std::string>(),
                         entry.at("shape").get<std::vector<int64_t>>()});
      if (!bytes_of_shape(tensors.back().shape, tensors.back().dtype))
        throw RunError(path + ": lists a tensor without a size: the file is damaged");
    }
    return tensors;
  });
}

std::string shards_json(const std::vector<ShardEntry>& shards) {
  OrderedJson list = OrderedJson::array();
  for (const auto& shard : shards)
    list.push_back({{"file", shard.file}, {"bytes", shard.bytes}, {"checksum", shard.checksum}});
  return list.dump();
}

std::vector<ShardEntry> shards_from_json(const std::string& json, const std::string& path) {
  return damaged_unless(path, kShardsKey, [&] {
    std::vector<ShardEntry> shards;
    for (const OrderedJson& entry : OrderedJson::parse(json)) {
      shards.push_back({entry.at("file").get<std::string>(), entry.at("bytes").get<uint64_t>(),
                        entry.at("checksum").get<std::string>()});
      if (shards.back().file != fs::path(shards.back().file).filename() ||
          !stem_of_shard(shards.back().file))
        throw RunError(path + ": names a shard that is none: the file is damaged");
    }
    return shards;
  });
}

std::vector<std::string> shard_paths(const std::string& snapshot) {
  std::vector<std::string> paths;
  const SafetensorsFile file(snapshot);
  const auto found = file.metadata().find(kShardsKey);
  if (found == file.metadata().end()) return paths;
  for (const auto& shard : shards_from_json(found->second, snapshot))
    paths.push_back((fs::path(snapshot).parent_path() / shard.file).string());
  return paths;
}

}  // namespace ddp::train
