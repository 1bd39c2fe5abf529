#include "trainer/config/keys/key_rows.h"

namespace ddp::train {

std::vector<Field> distributed_fields() {
  return {
      {DDP_KEY(distributed, backend),
       .meaning = "auto: nccl on GPUs, gloo on CPUs, where the ranks of one machine reduce through "
                  "memory that they share; gloo: through sockets there, too."},
      {DDP_KEY(distributed, bucket_cap_mb), .range = Range{0, 1e6, true}, .unit = "MiB",
       .meaning = "Bucket size: gradients that are all-reduced together."},
      {DDP_KEY(distributed, gradient_as_bucket_view),
       .meaning = "Keep gradients in the buckets: no copy, less memory."},
      {DDP_KEY(distributed, static_graph),
       .meaning = "Promise that the set of used parameters never changes; lets DDP optimize."},
      {DDP_KEY(distributed, gradient_compression),
       .meaning =
           "Type in which gradients travel between ranks, as with torch's bf16_compress_hook and "
           "fp16_compress_hook: half the bytes, 8 or 11 bits of mantissa; none: their own."},
      {DDP_KEY(distributed, ranks_per_device), .range = kUpTo1e4, .unit = "ranks",
       .null_means = NullMeans::kNotGiven, .default_text = "one on a GPU, any number on CPUs",
       .meaning = "Maximum number of ranks that share a GPU (over Gloo), or a machine's CPUs (each "
                  "with its share of the cores): virtual devices."},
      {DDP_KEY(distributed, memory_limit_mb), .range = kUpTo1e9, .unit = "MiB",
       .null_means = NullMeans::kNotGiven,
       .default_text = "an equal share of a GPU with ranks_per_device, else none",
       .meaning = "Memory limit per rank, enforced: on GPUs for tensors, on CPUs for what comes on "
                  "top of the program itself."},
      {DDP_KEY(distributed, timeout_s), .range = Range{0, 1e9, true}, .unit = "seconds",
       .meaning = "Timeout of collectives and of joining the process group."},
      {DDP_KEY(distributed, hang_timeout_s), .range = kAtLeast0, .unit = "seconds",
       .null_means = NullMeans::kOff,
       .meaning = "Time without a heartbeat after which ddp-run considers a rank hung and restarts "
                  "the group; auto: the larger of 3 s and 5 median steps; 0 or null: never."},
  };
}

}  // namespace ddp::train
