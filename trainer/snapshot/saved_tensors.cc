#include "trainer/snapshot/saved_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "trainer/runtime/error.h"
#include "trainer/runtime/files/atomic_file.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;

/// The place of an element, given by its number by rows.
std::vector<int64_t> coordinates_of(int64_t element, const std::vector<int64_t>& shape) {
  std::vector<int64_t> at(shape.size());
  for (std::size_t i = shape.size(); i-- > 0;) {
    at[i] = element % shape[i];
    element /= shape[i];
  }
  return at;
}

bool contains(const Box& box, const std::vector<int64_t>& at) {
  for (std::size_t i = 0; i < at.size(); ++i) {
    if (at[i] < box.offsets[i] || at[i] >= box.offsets[i] + box.sizes[i]) return false;
  }
  return true;
}

/// The number by rows, in the box, of an element that it contains.
int64_t element_in(const Box& box, const std::vector<int64_t>& at) {
  int64_t element = 0;
  for (std::size_t i = 0; i < at.size(); ++i)
    element = element * box.sizes[i] + at[i] - box.offsets[i];
  return element;
}

/// Elements from `at` on that follow each other in the box as they do in the tensor.
int64_t run_from(const Box& box, const std::vector<int64_t>& at,
                 const std::vector<int64_t>& shape) {
  int64_t run = 1;
  int64_t inner = 1;   // elements of a step along the dimension
  int64_t passed = 0;  // of these, up to `at`
  for (std::size_t i = shape.size(); i-- > 0;) {
    run = (box.offsets[i] + box.sizes[i] - at[i]) * inner - passed;
    if (box.sizes[i] != shape[i]) break;
    passed += at[i] * inner;
    inner *= shape[i];
  }
  return run;
}

std::string in_folder_of(const std::string& path, const std::string& file) {
  return (fs::path(path).parent_path() / file).string();
}

}  // namespace

std::size_t bytes_of(const LogicalTensor& tensor) {
  return bytes_of_shape(tensor.shape, tensor.dtype).value_or(0);
}

SavedTensors::SavedTensors(const std::string& path)
    : path_(path), front_(std::make_unique<SafetensorsFile>(path)) {
  const auto shards = front_->metadata().find(kShardsKey);
  if (shards == front_->metadata().end()) {
    for (const auto& tensor : front_->tensors()) {
      tensors_.push_back({tensor.name, tensor.dtype, tensor.shape});
      boxes_[tensor.name].push_back({Box::whole(tensor.shape), &tensor});
    }
  } else {
    front_->verify_header();  // the lists count: a flipped bit is damage
    shards_ = shards_from_json(shards->second, path);
    tensors_ = tensors_from_json(front_->require_metadata(kTensorsKey), path);
  }
  for (std::size_t i = 0; i < tensors_.size(); ++i) by_name_[tensors_[i].name] = i;
}

SavedTensors::SavedTensors(const std::vector<std::string>& shards)
    : path_(shards.at(0)), front_(std::make_unique<SafetensorsFile>(shards.front())) {
  front_->verify_header();
  tensors_ = tensors_from_json(front_->require_metadata(kTensorsKey), path_);
  for (std::size_t i = 0; i < tensors_.size(); ++i) by_name_[tensors_[i].name] = i;
  for (const auto& path : shards) {
    const SafetensorsFile file(path);
    file.verify_header();
    std::error_code ignored;
    shards_.push_back({fs::path(path).filename().string(), fs::file_size(path, ignored),
                       file.require_metadata(kChecksumKey)});
  }
}

const LogicalTensor* SavedTensors::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

// The checksum of its header covers the digests: nothing else can be at a place in it.
void SavedTensors::check_shard(const SafetensorsFile& file, const std::string& path,
                               const ShardEntry& entry) const {
  const auto id = shard_id(file, path);
  if (!id) throw RunError(fmt::format("{}: {} is no shard of a snapshot", path_, path));
  if (file.require_metadata(kChecksumKey) == entry.checksum) return file.verify_header();
  const auto step = metadata().find("step");
  throw RunError(fmt::format(
      "{}: {} is not the shard that was saved with it: it holds {}{}; copy the snapshot's files "
      "together",
      path_, path, text_of(*id),
      step != metadata().end() && step->second != std::to_string(id->step)
          ? fmt::format(", the snapshot is of step {}", step->second)
          : " of another save or was changed"));
}

void SavedTensors::open_shards() const {
  if (shards_.empty() || !files_.empty()) return;
  std::vector<std::unique_ptr<SafetensorsFile>> files;
  for (const auto& entry : shards_) {
    const std::string path = in_folder_of(path_, entry.file);
    if (!file_exists(path)) {
      throw RunError(fmt::format(
          "{}: its shard {} is missing; a snapshot of {} shards needs all of them next to it",
          path_, path, shards_.size()));
    }
    std::error_code error;
    const auto bytes = fs::file_size(path, error);
    if (error) throw UnreadableError(path, error.value());
    if (bytes != entry.bytes) {
      throw RunError(
          fmt::format("{}: its shard {} has {} bytes instead of {}: truncated or damaged", path_,
                      path, bytes, entry.bytes));
    }
    files.push_back(std::make_unique<SafetensorsFile>(path));
    check_shard(*files.back(), path, entry);
  }
  files_ = std::move(files);
  place_boxes();
}

void SavedTensors::place_boxes() const {
  BoxesByName boxes;
  for (std::size_t i = 0; i < files_.size(); ++i) {
    const std::string path = in_folder_of(path_, shards_[i].file);
    const auto of_shard = boxes_of(*files_[i], path);
    for (std::size_t t = 0; t < of_shard.size(); ++t) {
      const TensorBytes& bytes = files_[i]->tensors()[t];
      const std::string name = name_of_key(bytes.name);
      const LogicalTensor* whole = find(name);
      if (whole == nullptr || whole->dtype != bytes.dtype)
        throw RunError(fmt::format("{}: {} does not belong into the snapshot", path, bytes.name));
      boxes[name].push_back(of_shard[t]);
      boxes_[name].push_back({of_shard[t], &bytes});
    }
  }
  const std::string error = cover_error(tensors_, boxes);
  if (!error.empty())
    throw RunError(fmt::format("{}: its shards do not fit together: {}", path_, error));
}

SavedTensors::Place SavedTensors::place_of(const LogicalTensor& tensor, std::size_t byte) const {
  const auto size = element_bytes(tensor.dtype);
  const auto at = coordinates_of(static_cast<int64_t>(byte / size), tensor.shape);
  for (const Stored& stored : boxes_.at(tensor.name)) {
    if (!contains(stored.box, at)) continue;
    const std::size_t in_box = static_cast<std::size_t>(element_in(stored.box, at)) * size;
    const auto run = static_cast<std::size_t>(run_from(stored.box, at, tensor.shape)) * size;
    return {stored.bytes->data + in_box + byte % size, run - byte % size};
  }
  throw std::logic_error("snapshot: no place for an element of " + tensor.name);
}

void SavedTensors::read(const LogicalTensor& tensor, std::size_t first, std::size_t bytes,
                        const Take& take) const {
  open_shards();
  while (bytes > 0) {
    const Place place = place_of(tensor, first);
    const std::size_t part = std::min(bytes, place.bytes);
    take(place.data, part);
    first += part;
    bytes -= part;
  }
}

void SavedTensors::verify_checksum() const {
  front_->verify_checksum();
  open_shards();
  for (const auto& file : files_) file->verify_checksum();
}

}  // namespace ddp::train
