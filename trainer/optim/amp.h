// Automatic mixed precision: autocast for the forward pass, GradScaler for float16 gradients.
#pragma once

#include <torch/torch.h>

#include <optional>
#include <vector>

#include "trainer/config/trainer_config.h"

namespace ddp::train {

/// torch.autocast for the calling thread while it exists; does nothing if `dtype` is empty.
class Autocast {
 public:
  Autocast(torch::DeviceType device, std::optional<torch::ScalarType> dtype);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  torch::DeviceType device_;
  bool enabled_;
  bool was_enabled_ = false;
  torch::ScalarType old_dtype_ = torch::kFloat32;
};

/// Returns the configured dtype; nullopt for float32.
std::optional<torch::ScalarType> autocast_dtype(const TrainerConfig& config);

/// torch.amp.GradScaler: multiplies the loss so that float16 gradients do not underflow, divides
/// the gradients again, skips the update if one of them is not finite, and adapts the factor. Never
/// syncs with the host. Disabled (float32 and bfloat16 need none): scale() and unscale() return
/// their argument's values unchanged.
class GradScaler {
 public:
  struct State {
    float scale = 65536.0F;
    int32_t growth_tracker = 0;
    bool operator==(const State&) const = default;
  };

  GradScaler(bool enabled, torch::Device device);

  bool enabled() const { return enabled_; }
  torch::Tensor scale(const torch::Tensor& loss) const;
  /// Divides `gradients` by the scale in place. Returns 1 or 0 (float32 scalar): whether one of
  /// them is inf or NaN; nullopt if disabled.
  std::optional<torch::Tensor> unscale(const std::vector<torch::Tensor>& gradients);
  /// Halves the scale after a skipped step, doubles it after 2000 good ones in a row.
  void update(const std::optional<torch::Tensor>& found_inf);

  /// The state as two float64 on the device: one copy to the host reads both.
  torch::Tensor packed_state() const;
  /// The state that packed_state() returned, now on the CPU.
  static State unpack(const torch::Tensor& packed);
  void load_state(const State& state);

 private:
  bool enabled_;
  torch::Tensor scale_;
  torch::Tensor growth_tracker_;
};

}  // namespace ddp::train
