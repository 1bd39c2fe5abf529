// Reads config.json of a transformers folder and the metadata of a snapshot, for any
// model.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "trainer/config/keys/key_table.h"
#include "trainer/config/task_kind.h"

namespace ddp::train {

inline constexpr const char* kHowToMakePretrained =
    "give a snapshot of trainer, or a folder that transformers' save_pretrained, trainer export "
    "or, "
    "for a GPT, scripts/convert_checkpoint.py has written";

/// The header of a safetensors file and where its tensors begin, by
/// https://github.com/huggingface/safetensors#format. Null if it cannot be read.
std::pair<nlohmann::json, uint64_t> safetensors_header(const std::string& path);
/// The metadata in it. Throws UserError: it has none.
nlohmann::json snapshot_metadata(const std::string& path);

/// Prints a line to standard error, on one rank.
void note_on_one_rank(const std::string& text);

/// Throws UserError: no such file, not JSON.
nlohmann::json parse_pretrained_config(const std::string& path);

/// Values of an object in the file `path`, with the defaults that transformers has for them. Both
/// must outlive it. Throws UserError on a value of another type or out of its range.
class PretrainedValues {
 public:
  PretrainedValues(const nlohmann::json& config, const std::string& path)
      : config_(config), path_(path) {}

  bool has(const char* key) const;  ///< And not as null.
  bool is_null(const char* key) const { return config_.contains(key) && !has(key); }
  /// From 1 to `most`, as the key of the configuration that takes it.
  int64_t number(const char* key, int64_t otherwise, int64_t most) const;
  int64_t whole(const char* key, int64_t otherwise) const;  ///< At least 0.
  bool flag(const char* key, bool otherwise) const;
  double real(const char* key, double otherwise, const Range& range) const;
  std::string text(const char* key, const std::string& otherwise) const;

 private:
  template <class T>
  T get(const char* key, const T& otherwise, bool (nlohmann::json::*is_of_type)() const) const;
  [[noreturn]] void fail(const char* key, const std::string& expected = "") const;

  const nlohmann::json& config_;
  const std::string& path_;
};

/// Largest sizes, as the ranges of the configuration's keys.
inline constexpr int64_t kMostLayers = 10'000;  ///< Also heads, and the width of one.
inline constexpr int64_t kMostWidth = 1'000'000;
inline constexpr int64_t kMostPositions = 1'000'000'000;

/// A key of config.json whose other values would mean another computation; absent or null: `value`.
struct FixedKey {
  const char* name;
  nlohmann::json value;
};
/// "mlp_bias is true, not false" for each of `keys` that has another value.
std::vector<std::string> differences_from_fixed(const nlohmann::json& config,
                                                const std::vector<FixedKey>& keys);

template <class T>
void compare_value(std::vector<std::string>& differences, const char* name, const T& there,
                   const T& here) {
  if (there != here)
    differences.push_back(fmt::format("{} is {} there, {} here", name, there, here));
}

/// Takes the metadata, the configuration and the task.
using TakeSnapshot =
    std::function<void(const nlohmann::json&, const nlohmann::json&, const std::string&)>;
/// Calls `take` for a snapshot of one of `tasks`. Throws UserError if it is none, or if `take`
/// does not find a value.
void with_pretrained_snapshot(const std::string& path, const std::vector<TaskKind>& tasks,
                              const TakeSnapshot& take);

}  // namespace ddp::train
