// distributed_config.offload=optimizer: the optimizer's state in host memory, updates by the CPU
// (J. Ren et al., "ZeRO-Offload: Democratizing billion-scale model training", 2021).
#pragma once

#include <torch/torch.h>

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "trainer/config/optimizer_config.h"
#include "trainer/optim/optimizer.h"
#include "trainer/parallel/device/device_wait.h"
#include "trainer/parallel/device/page_lock.h"

namespace ddp::train {

struct Config;

/// Updates parameters of a GPU in host memory, where it keeps a copy of their values and all of
/// the state of the optimizer that `config` selects. Parameters and gradients stay on the GPU:
/// AdamW saves 8 bytes per parameter there, for 12 bytes of host memory.
///
/// A step works through the parameters chunk by chunk. While the CPU updates a chunk, the next
/// one's gradients are downloaded and the last one's weights uploaded, each on its own stream,
/// through page-locked memory: 8 bytes per parameter and step. The training thread waits for
/// gradients by wait_for_device() and for nothing else; whatever it queues after step() sees the
/// new weights. There is room for the gradients of two chunks.
///
/// Bitwise identical to the same optimizer on the CPU. Takes no part in collectives: under ZeRO,
/// `trained` are this rank's pieces.
class OffloadedOptimizer : public Optimizer {
 public:
  OffloadedOptimizer(TrainedParameters trained, const OptimizerConfig& config);
  ~OffloadedOptimizer() override;

  /// Returns the state in host memory, in the form that snapshots have without offload.
  std::vector<NamedTensor> state() const override;
  const std::vector<Parameter>& masters() const override { return masters_; }
  void refresh_masters() override;
  void write_masters(const std::function<void()>& write) override;
  torch::Tensor found_inf_of_masters(const torch::Tensor& found_inf) const override;

 protected:
  bool update(double learning_rate, const torch::Tensor& found_inf, const torch::Tensor& scale,
              const CopyOf& copy_of) override;

 private:
  static constexpr std::size_t kSlots = 2;  // chunks whose gradients have room

  /// Page-locked host memory, divided into tensors.
  struct HostMemory {
    explicit HostMemory(std::size_t bytes);
    torch::Tensor tensor_like(const torch::Tensor& like, std::size_t offset) const;
    MappedMemory memory;
    PageLock lock;
  };
  /// Consecutive parameters that are updated together.
  struct Chunk {
    std::size_t first = 0;
    std::unique_ptr<Optimizer> optimizer;  // on masters, their gradients in a slot
    ReadyEvent arrived;                    // its gradients, in the current step
  };

  void make_masters();
  void make_chunks(const OptimizerConfig& config);
  /// Returns the ends of chunks, as indices of parameters.
  std::vector<std::size_t> chunk_ends() const;
  void send_down(CopyStream& queue, Chunk& chunk);
  void send_up(CopyStream& queue, const Chunk& chunk);

  std::unique_ptr<HostMemory> values_;
  std::array<std::unique_ptr<HostMemory>, kSlots> slots_;
  std::vector<Parameter> masters_;
  std::vector<Chunk> chunks_;
  torch::Tensor counters_;  // number of updates, found_inf: of the last step, page-locked
  ReadyEvent given_;        // the last copy to parameters()
};

/// Creates the optimizer selected by distributed_config.offload and optimizer_config.
std::unique_ptr<Optimizer> make_optimizer(TrainedParameters trained, const Config& config);

}  // namespace ddp::train
