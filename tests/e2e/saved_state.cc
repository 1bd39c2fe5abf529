#include "tests/e2e/saved_state.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include "tests/support/catch.h"

#include "trainer/tensorfile/safetensors.h"

namespace ddp::test {
namespace {

using train::SafetensorsFile;
using train::TensorBytes;

/// A tensor put together from its pieces, without the code that the programs read them with.
struct Whole {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
  bool operator==(const Whole&) const = default;
};

/// A box of one shard.
struct Box {
  std::vector<int64_t> offsets, sizes;
  std::string bytes;
};

nlohmann::json json_of(const SafetensorsFile& file, const std::string& key) {
  return nlohmann::json::parse(file.require_metadata(key));
}

std::string bytes_of(const TensorBytes& tensor) {
  return {reinterpret_cast<const char*>(tensor.data), tensor.size};
}

/// Copies a box to its place, one run of the last dimension at a time.
void place(const Box& box, std::size_t element, Whole& whole) {
  const std::size_t last = box.sizes.empty() ? 0 : box.sizes.size() - 1;
  const auto run = static_cast<std::size_t>(box.sizes.empty() ? 1 : box.sizes[last]) * element;
  for (std::size_t from = 0; from < box.bytes.size(); from += run) {
    auto number = static_cast<int64_t>(from / run);  // of the run, in the box
    int64_t at = 0, step = 1;
    for (std::size_t d = box.sizes.size(); d-- > 0; step *= whole.shape[d]) {
      const int64_t inside = d == last ? 0 : number % box.sizes[d];
      if (d != last) number /= box.sizes[d];
      at += (box.offsets[d] + inside) * step;
    }
    whole.bytes.replace(static_cast<std::size_t>(at) * element, run, box.bytes, from, run);
  }
}

std::map<std::string, std::vector<Box>> boxes_of_shards(const std::string& index) {
  std::map<std::string, std::vector<Box>> boxes;
  for (const auto& path : shards_of(index)) {
    const SafetensorsFile shard(path);
    shard.verify_checksum();
    const auto places = json_of(shard, "DCP_SHARDING_INFO");
    for (const auto& tensor : shard.tensors()) {
      const auto at = places.at(tensor.name).at("saved_offsets").get<std::vector<int64_t>>();
      boxes[tensor.name.substr(0, tensor.name.find('#'))].push_back(
          {at, tensor.shape, bytes_of(tensor)});
    }
  }
  return boxes;
}

std::map<std::string, Whole> tensors_of(const std::string& snapshot) {
  const SafetensorsFile file(snapshot);
  file.verify_checksum();
  std::map<std::string, Whole> tensors;
  for (const auto& tensor : file.tensors())
    tensors[tensor.name] = {tensor.dtype, tensor.shape, bytes_of(tensor)};
  if (shards_of(snapshot).empty()) return tensors;
  const auto boxes = boxes_of_shards(snapshot);
  for (const auto& entry : json_of(file, "tensors")) {
    auto& tensor = tensors[entry.at("name")];
    tensor = {entry.at("dtype"), entry.at("shape").get<std::vector<int64_t>>(), ""};
    std::size_t elements = 1, bytes = 0;
    for (const int64_t size : tensor.shape) elements *= static_cast<std::size_t>(size);
    for (const Box& box : boxes.at(entry.at("name"))) bytes += box.bytes.size();
    if (bytes == 0) continue;
    tensor.bytes.resize(bytes);
    for (const Box& box : boxes.at(entry.at("name"))) place(box, bytes / elements, tensor);
  }
  return tensors;
}

train::Metadata what_must_be_equal(const std::string& snapshot) {
  train::Metadata metadata = SafetensorsFile(snapshot).metadata();
  for (const char* key : {"config", "world_size", train::kChecksumKey, train::kDigestsKey,
                          "format_version", "shards", "tensors"})
    metadata.erase(key);
  // Where the pretrained model lies is, as in the configuration, no part of what was trained.
  if (const auto base = metadata.find("base_settings"); base != metadata.end()) {
    auto settings = nlohmann::json::parse(base->second);
    settings.erase("folder");
    base->second = settings.dump();
  }
  return metadata;
}

void add_different_metadata(const std::string& one, const std::string& two, Words& names) {
  const auto a = what_must_be_equal(one);
  const auto b = what_must_be_equal(two);
  for (const auto& [key, value] : a) {
    if (b.count(key) == 0 || b.at(key) != value) names.push_back(key);
  }
  if (a.size() != b.size()) names.emplace_back("number of metadata keys");
}

double largest_distance(const Whole& a, const Whole& b) {
  REQUIRE(a.dtype == "F32");
  REQUIRE(a.shape == b.shape);
  double largest = 0;
  for (std::size_t at = 0; at < a.bytes.size(); at += sizeof(float)) {
    float x = 0, y = 0;
    std::memcpy(&x, a.bytes.data() + at, sizeof x);
    std::memcpy(&y, b.bytes.data() + at, sizeof y);
    largest = std::max(largest, std::abs(static_cast<double>(x) - y));
  }
  return largest;
}

}  // namespace

Words changed_tensors(const std::string& snapshot, const std::string& other) {
  Words changed = differences(snapshot, other);
  std::erase_if(changed, [](const std::string& name) {
    return !name.starts_with("model.") && !name.starts_with("optimizer.") &&
           !name.starts_with("ema.");
  });
  return changed;
}

Words shards_of(const std::string& snapshot) {
  Words paths;
  const SafetensorsFile file(snapshot);
  if (!file.metadata().contains("shards")) return paths;
  const auto folder = std::filesystem::path(snapshot).parent_path();
  for (const auto& shard : json_of(file, "shards"))
    paths.push_back((folder / shard.at("file").get<std::string>()).string());
  return paths;
}

void copy_snapshot(const std::string& from, const std::string& to) {
  namespace fs = std::filesystem;
  for (const auto& file : joined(shards_of(from), {from})) {
    const std::string name =
        file == from ? fs::path(to).filename().string() : fs::path(file).filename().string();
    fs::copy_file(file, fs::path(to).parent_path() / name, fs::copy_options::overwrite_existing);
  }
}

Words differences(const std::string& snapshot, const std::string& other) {
  const auto one = tensors_of(snapshot);
  const auto two = tensors_of(other);
  REQUIRE(!one.empty());
  Words names;
  add_different_metadata(snapshot, other, names);
  for (const auto& [name, tensor] : one) {
    const auto counterpart = two.find(name);
    if (counterpart == two.end() || !(counterpart->second == tensor)) names.push_back(name);
  }
  if (one.size() != two.size()) names.emplace_back("number of tensors");
  return names;
}

double largest_parameter_distance(const std::string& snapshot, const std::string& other) {
  const auto one = tensors_of(snapshot);
  const auto two = tensors_of(other);
  double largest = 0;
  int compared = 0;
  for (const auto& [name, tensor] : one) {
    if (name.rfind("model.", 0) != 0) continue;
    REQUIRE(two.contains(name));
    largest = std::max(largest, largest_distance(tensor, two.at(name)));
    ++compared;
  }
  REQUIRE(compared > 0);
  return largest;
}

bool is_whole(const std::string& snapshot) {
  try {
    SafetensorsFile(snapshot).verify_checksum();
    for (const auto& shard : shards_of(snapshot)) SafetensorsFile(shard).verify_checksum();
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

void rewrite_metadata(const std::string& snapshot, const std::string& key,
                      const std::string& value) {
  const SafetensorsFile file(snapshot);
  auto metadata = file.metadata();
  metadata[key] = value;
  train::publish_safetensors(snapshot, "", metadata, file.tensors());
}

nlohmann::json inspect(const Workspace& place, const std::string& snapshot) {
  return nlohmann::json::parse(succeed(trainer(place, {"inspect", snapshot, "--json"})).out);
}

std::string content_sha256(const Workspace& place) {
  return inspect(place, place.snapshot()).at("content_sha256");
}

std::string read_bytes(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace ddp::test
