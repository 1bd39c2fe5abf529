// Seeds dropout per layer, independent of earlier random numbers.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <map>
#include <vector>

namespace ddp::train {

/// Generators for passes that a CUDA graph records, in which nothing can be seeded: one for what is
/// drawn before the layers, one for each layer. With the same seed they draw what LayerSeeds makes
/// the default generator draw. Belongs to the training thread.
class LayerGenerators {
 public:
  explicit LayerGenerators(torch::Device device);

  /// Seeds all of them for a micro-batch with this dropout_seed().
  void seed(uint64_t dropout_seed);
  /// A layer's generator is created when a pass first reaches it.
  std::vector<at::Generator> all() const;

  /// While it exists, the device's default generator draws from them. At most one at a time.
  class Use {
   public:
    explicit Use(LayerGenerators& generators);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    at::Generator before_;
  };

 private:
  friend class LayerSeeds;
  void begin(int64_t layer);
  void draw_from(const at::Generator& generator);

  at::Generator default_;
  at::Generator before_layers_;
  std::map<int64_t, at::Generator> of_layers_;
  uint64_t seed_ = 0;
};

/// Seeds the default generator of `device` anew for each layer, from the seed that it had at
/// construction: a process that has some of the layers draws the masks that one with all of them
/// draws.
class LayerSeeds {
 public:
  /// `active`: whether anything is drawn at all; else the generator is left alone.
  LayerSeeds(torch::Device device, bool active);
  void begin(int64_t layer);

 private:
  at::Generator generator_;
  uint64_t seed_ = 0;
  bool active_;
};

}  // namespace ddp::train
