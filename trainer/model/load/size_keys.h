// The keys for a model's sizes: a preset's name, the three sizes, or a pretrained model to follow.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/config/keys/config_checks.h"
#include "trainer/hydra/compose/folders.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/log/message.h"

namespace ddp::train {

/// A size preset of model_type.
struct ModelPreset {
  std::string_view name;
  int64_t n_layer;
  int64_t n_head;
  int64_t n_embd;
};

/// The section `section` of the configuration, whose values are in `model`.
template <class Model>
class SizeKeys {
 public:
  SizeKeys(Model& model, std::string section, const Given& given)
      : model_(model), section_(std::move(section)), given_(given) {}

  /// Whether n_layer, n_head and n_embd are all given, without a preset.
  bool sizes_given() const {
    std::vector<std::string> present;
    std::vector<std::string> absent;
    for (const char* name : {"n_layer", "n_head", "n_embd"})
      (given_.has(key(name)) ? present : absent).push_back(key(name));
    if (present.empty()) return false;
    if (given_.has(key("model_type"))) {
      given_.refuse(present.front(),
                    fmt::format("conflicts with {}={}; keep either the preset or the three sizes",
                                key("model_type"), model_.model_type));
    }
    if (!absent.empty()) {
      given_.refuse(present.front(),
                    fmt::format("{} {} missing; set n_layer, n_head and n_embd "
                                "together, or model_type instead",
                                fmt::join(absent, ", "), absent.size() == 1 ? "is" : "are"));
    }
    return true;
  }

  /// Copies the sizes of a ModelPreset or a PretrainedSizes.
  template <class Sizes>
  void take_sizes(const Sizes& from) {
    model_.n_layer = from.n_layer;
    model_.n_head = from.n_head;
    model_.n_embd = from.n_embd;
  }

  /// Returns the preset, a ModelPreset or one with more values.
  template <class Preset>
  const Preset& take_preset(const std::vector<Preset>& presets, const char* otherwise) {
    std::string& name = model_.model_type;
    if (name.empty()) name = otherwise;
    std::vector<std::string> names;
    for (const Preset& preset : presets) {
      names.emplace_back(preset.name);
      if (preset.name != name) continue;
      take_sizes(preset);
      return preset;
    }
    given_.refuse(key("model_type"),
                  fmt::format("'{}' is not one of {}; {}", name, fmt::join(names, ", "),
                              did_you_mean(name, names, "choose one")));
  }

  /// `differences`: from the model at init_from, after missing values were taken from it.
  template <class Differences>
  void follow(Differences differences) {
    const std::string as_given = std::exchange(model_.init_from, absolute_path(model_.init_from));
    try {
      const std::vector<std::string> found = differences(model_.init_from);
      if (found.empty()) return;
      throw UserError(fmt::format("{}: does not fit: {}", as_given, fmt::join(found, "; ")));
    } catch (const UserError& error) {
      given_.refuse(key("init_from"), error.what());
    }
  }

  void check_heads() const {
    const int64_t below = model_.n_embd / model_.n_head * model_.n_head;
    if (below == model_.n_embd) return;
    given_.refuse(key("n_embd"),
                  fmt::format("{} is not divisible by {}={}; the nearest widths are {} and {}",
                              model_.n_embd, key("n_head"), model_.n_head,
                              std::max(model_.n_head, below), below + model_.n_head));
  }

 private:
  std::string key(const char* name) const { return section_ + "." + name; }

  Model& model_;
  const std::string section_;
  const Given& given_;
};

}  // namespace ddp::train
