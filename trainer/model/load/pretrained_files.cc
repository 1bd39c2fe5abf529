#include "trainer/model/load/pretrained_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

#include "trainer/model/load/pretrained_json.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

struct StoredTensor {
  std::string file;
  std::string name;
  Json entry;      ///< In the header: dtype, shape, data_offsets.
  uint64_t begin;  ///< In the file.
  uint64_t size() const {
    return entry.at("data_offsets").at(1).get<uint64_t>() -
           entry.at("data_offsets").at(0).get<uint64_t>();
  }
};

bool equal_bytes(const StoredTensor& one, const StoredTensor& other) {
  if (one.entry.at("dtype") != other.entry.at("dtype") || one.size() != other.size()) return false;
  std::ifstream first(one.file, std::ios::binary);
  std::ifstream second(other.file, std::ios::binary);
  first.seekg(static_cast<std::streamoff>(one.begin));
  second.seekg(static_cast<std::streamoff>(other.begin));
  std::vector<char> a(1U << 20U);
  std::vector<char> b(a.size());
  for (uint64_t left = one.size(); left > 0;) {
    const auto part = std::min<uint64_t>(left, a.size());
    first.read(a.data(), static_cast<std::streamsize>(part));
    second.read(b.data(), static_cast<std::streamsize>(part));
    if (!first || !second ||
        !std::equal(a.begin(), a.begin() + static_cast<int64_t>(part), b.begin()))
      return false;
    left -= part;
  }
  return true;
}

}  // namespace

std::set<std::string> weight_files(const std::string& folder, const PretrainedLayout& layout) {
  const std::string single = folder + "/" + layout.file;
  std::error_code ignored;
  if (fs::exists(single, ignored)) return {single};
  const std::string index = single + ".index.json";
  if (!fs::exists(index, ignored)) return {};
  std::set<std::string> files;
  const Json shards = parse_pretrained_config(index).value("weight_map", Json::object());
  for (const Json& file : shards.is_object() ? shards : Json::object())
    if (file.is_string()) files.insert(folder + "/" + fs::path(file).filename().string());
  return files;
}

std::string own_head_note(const std::string& folder, const PretrainedLayout& layout) {
  std::optional<StoredTensor> head, words;
  try {
    for (const std::string& file : weight_files(folder, layout)) {
      const auto [header, length] = safetensors_header(file);
      for (const auto& [name, entry] : header.items()) {
        const std::string own = layout.own_name(name);
        if (own != "lm_head.weight" && !own.ends_with(layout.words)) continue;
        const uint64_t begin = length + entry.at("data_offsets").at(0).get<uint64_t>();
        (own == "lm_head.weight" ? head : words) = StoredTensor{file, name, entry, begin};
      }
    }
    if (!head || !words || equal_bytes(*head, *words)) return "";
  } catch (const Json::exception&) {
    return "";  // a damaged file, which its reader reports
  }
  return fmt::format(
      "{}: {} differs from {}: both are used, as by transformers, though tie_word_embeddings is "
      "true in config.json; set it to false there",
      head->file, head->name, words->name);
}

}  // namespace ddp::train
