#include "tests/e2e/saved_state.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include "tests/support/catch.h"

#include "trainer/runtime/error.h"
#include "trainer/tensorfile/safetensors.h"

namespace ddp::test {
namespace {

using train::SafetensorsFile;
using train::TensorBytes;

bool same(const TensorBytes& a, const TensorBytes& b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.size == b.size &&
         std::memcmp(a.data, b.data, a.size) == 0;
}

train::Metadata what_must_be_equal(const SafetensorsFile& file) {
  train::Metadata metadata = file.metadata();
  for (const char* key : {"config", "world_size", train::kChecksumKey}) metadata.erase(key);
  return metadata;
}

void add_different_metadata(const SafetensorsFile& one, const SafetensorsFile& two, Words& names) {
  const auto a = what_must_be_equal(one);
  const auto b = what_must_be_equal(two);
  for (const auto& [key, value] : a) {
    if (b.count(key) == 0 || b.at(key) != value) names.push_back(key);
  }
  if (a.size() != b.size()) names.emplace_back("number of metadata keys");
}

double largest_distance(const TensorBytes& a, const TensorBytes& b) {
  REQUIRE(a.dtype == "F32");
  REQUIRE(a.shape == b.shape);
  double largest = 0;
  for (std::size_t at = 0; at < a.size; at += sizeof(float)) {
    float x = 0, y = 0;
    std::memcpy(&x, a.data + at, sizeof x);
    std::memcpy(&y, b.data + at, sizeof y);
    largest = std::max(largest, std::abs(static_cast<double>(x) - y));
  }
  return largest;
}

}  // namespace

Words differences(const std::string& snapshot, const std::string& other) {
  const SafetensorsFile one(snapshot);
  const SafetensorsFile two(other);
  one.verify_checksum();
  two.verify_checksum();
  REQUIRE(!one.tensors().empty());
  Words names;
  add_different_metadata(one, two, names);
  for (const auto& tensor : one.tensors()) {
    const auto* counterpart = two.find(tensor.name);
    if (counterpart == nullptr || !same(tensor, *counterpart)) names.push_back(tensor.name);
  }
  if (one.tensors().size() != two.tensors().size()) names.emplace_back("number of tensors");
  return names;
}

double largest_parameter_distance(const std::string& snapshot, const std::string& other) {
  const SafetensorsFile one(snapshot);
  const SafetensorsFile two(other);
  double largest = 0;
  int compared = 0;
  for (const auto& tensor : one.tensors()) {
    if (tensor.name.rfind("model.", 0) != 0) continue;
    REQUIRE(two.find(tensor.name) != nullptr);
    largest = std::max(largest, largest_distance(tensor, *two.find(tensor.name)));
    ++compared;
  }
  REQUIRE(compared > 0);
  return largest;
}

bool is_whole(const std::string& snapshot) {
  try {
    SafetensorsFile(snapshot).verify_checksum();
    return true;
  } catch (const train::RunError&) {
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
