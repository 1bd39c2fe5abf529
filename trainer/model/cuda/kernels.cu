// Kernels for operations that torch splits into several passes over device memory. Compiled by NVRTC for the present device
// when a run starts (kernel_module.h), and as C++ for the host by the tests and the fake GPUs (host_cuda.h). No headers:
// NVRTC has none.
//
// A block's size is any power of two. bfloat16 numbers are handled as their 16 bits, the upper half of a float's.

#ifdef __CUDACC_RTC__
#define DDP_SHARED(type, name) extern __shared__ __align__(16) type name[]
#define INFINITY __int_as_float(0x7f800000)
#endif

typedef unsigned short bfloat16;

struct __align__(16) Eight {
  bfloat16 at[8];
};
struct __align__(8) Four {
  bfloat16 at[4];
};
struct __align__(16) FourFloats {
  float at[4];
};

static __device__ float to_float(bfloat16 x) { return __uint_as_float(static_cast<unsigned>(x) << 16); }

// To the nearest, ties to even; NaN stays NaN.
static __device__ bfloat16 to_bfloat16(float x) {
  const unsigned bits = __float_as_uint(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<bfloat16>(bits >> 16 | 0x40u);
  return static_cast<bfloat16>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

// The sum of exp(x - largest) over some x.
struct Exponentials {
  float largest;
  float sum;
};

static __device__ Exponentials join(Exponentials a, Exponentials b) {
  const float largest = fmaxf(a.largest, b.largest);
  if (largest == -INFINITY) return {largest, a.sum + b.sum};  // no finite x yet
  return {largest, a.sum * expf(a.largest - largest) + b.sum * expf(b.largest - largest)};
}

// Of the first `count` of eight logits; a constant count keeps them in registers.
static __device__ Exponentials exponentials(const Eight& eight, int count) {
  Exponentials result = {-INFINITY, 0.0f};
  for (int k = 0; k < count; ++k) result.largest = fmaxf(result.largest, to_float(eight.at[k]));
  const float base = result.largest == -INFINITY ? 0.0f : result.largest;
  for (int k = 0; k < count; ++k) result.sum += expf(to_float(eight.at[k]) - base);
  return result;
}

// Over all threads of the block, in an order that depends on its size alone. On all threads.
static __device__ Exponentials join_across_block(Exponentials own, Exponentials* shared) {
  shared[threadIdx.x] = own;
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) shared[threadIdx.x] = join(shared[threadIdx.x], shared[threadIdx.x + half]);
    __syncthreads();
  }
  return shared[0];
}

// The cross-entropy of one row of logits per block, and its gradient in their place: one read and one write of device memory
// where a row fits into the cache. After A. Karpathy's llm.c (fused_classifier.cuh).
//   logits  bfloat16 [N, stride], stride a multiple of 8; the first `classes` of a row count, the others' gradient is 0
//   targets int64 [N]; negative: the row does not count, its loss and gradient are 0; `classes` or more: its loss is NaN
//   losses  float [N]
extern "C" __global__ void __launch_bounds__(1024)
    ddp_cross_entropy(bfloat16* logits, const long long* targets, float* losses, long long classes, long long stride) {
  DDP_SHARED(Exponentials, shared);
  bfloat16* row = logits + static_cast<long long>(blockIdx.x) * stride;
  const long long target = targets[blockIdx.x];
  const long long first = 8ll * threadIdx.x;
  const long long step = 8ll * blockDim.x;

  Exponentials own = {-INFINITY, 0.0f};
  if (target >= 0) {
    for (long long i = first; i < classes; i += step) {
      const Eight eight = *reinterpret_cast<const Eight*>(row + i);
      const Exponentials these =
          i + 8 <= classes ? exponentials(eight, 8) : exponentials(eight, static_cast<int>(classes - i));
      own = join(own, these);
    }
  }
  float of_target = 0.0f;  // before it is overwritten
  if (target >= 0) of_target = target < classes ? to_float(row[target]) : INFINITY - INFINITY;
  const Exponentials all = join_across_block(own, shared);
  const float normaliser = all.largest + logf(all.sum);
  if (threadIdx.x == 0) losses[blockIdx.x] = target >= 0 ? normaliser - of_target : 0.0f;

  for (long long i = first; i < stride; i += step) {
    Eight eight = *reinterpret_cast<const Eight*>(row + i);
    for (int k = 0; k < 8; ++k) {
      const float share = expf(to_float(eight.at[k]) - normaliser) - (i + k == target ? 1.0f : 0.0f);
      eight.at[k] = target >= 0 && i + k < classes ? to_bfloat16(share) : static_cast<bfloat16>(0);
    }
    *reinterpret_cast<Eight*>(row + i) = eight;
  }
}

struct Sums {
  float a, b;
};

// Over all threads of the block, in an order that depends on its size alone. On all threads.
static __device__ Sums sum_across_block(Sums own, Sums* shared) {
  __syncthreads();  // the last result has been read
  shared[threadIdx.x] = own;
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) {
      shared[threadIdx.x].a += shared[threadIdx.x + half].a;
      shared[threadIdx.x].b += shared[threadIdx.x + half].b;
    }
    __syncthreads();
  }
  return shared[0];
}

// The vectors of a row that are this thread's, in every pass over it.
#define DDP_EACH_VECTOR(i, columns) for (long long i = 4ll * threadIdx.x; i < (columns); i += 4ll * blockDim.x)

// One row per block: sum = residual + branch, and its LayerNorm as the next product takes it; without a bias its RMSNorm. A
// row stays in shared memory: `columns` floats, then Sums for each thread.
//   residual float [N, columns], columns a multiple of 4; branch bfloat16 [N, columns], or null: sum is not written
//   y bfloat16 [N, columns]; statistics float [N, 2], mean and 1 / standard deviation, for the backward pass
extern "C" __global__ void __launch_bounds__(1024)
    ddp_add_norm(const float* __restrict__ residual, const bfloat16* __restrict__ branch,
                 const float* __restrict__ weight, const float* __restrict__ bias, float* __restrict__ sum,
                 bfloat16* __restrict__ y, float* __restrict__ statistics, long long columns, float epsilon) {
  DDP_SHARED(float, row);
  Sums* shared = reinterpret_cast<Sums*>(row + columns);
  const bool centred = bias != nullptr;
  const long long start = static_cast<long long>(blockIdx.x) * columns;
  Sums own = {0.0f, 0.0f};
  DDP_EACH_VECTOR(i, columns) {
    FourFloats x = *reinterpret_cast<const FourFloats*>(residual + start + i);
    if (branch != nullptr) {
      const Four added = *reinterpret_cast<const Four*>(branch + start + i);
      for (int k = 0; k < 4; ++k) x.at[k] += to_float(added.at[k]);
      *reinterpret_cast<FourFloats*>(sum + start + i) = x;
    }
    *reinterpret_cast<FourFloats*>(row + i) = x;
    for (int k = 0; k < 4; ++k) own.a += centred ? x.at[k] : x.at[k] * x.at[k];
  }
  float mean = 0.0f;
  float variance = sum_across_block(own, shared).a / static_cast<float>(columns);
  if (centred) {
    mean = variance;
    own.a = 0.0f;
    DDP_EACH_VECTOR(i, columns) {
      for (int k = 0; k < 4; ++k) own.a += (row[i + k] - mean) * (row[i + k] - mean);
    }
    variance = sum_across_block(own, shared).a / static_cast<float>(columns);
  }
  const float scale = 1.0f / sqrtf(variance + epsilon);
  if (threadIdx.x == 0) {
    statistics[2ll * blockIdx.x] = mean;
    statistics[2ll * blockIdx.x + 1] = scale;
  }
  DDP_EACH_VECTOR(i, columns) {
    Four four;
    for (int k = 0; k < 4; ++k) {
      const float normal = (row[i + k] - mean) * scale * weight[i + k];
      four.at[k] = to_bfloat16(centred ? normal + bias[i + k] : normal);
    }
    *reinterpret_cast<Four*>(y + start + i) = four;
  }
}

// The gradients of ddp_add_norm's inputs, from those of its results; `chunk` rows per block, one after the other. Shared
// memory: `columns` floats for each row of `parts`, then Sums for each thread.
//   dy bfloat16 [N, columns]; dsum float, of sum's other uses, or null; x: what was normalised
//   dx float [N, columns]; dbranch bfloat16, the same once more, or null
//   parts float [blocks, centred ? 2 : 1, columns]: sums over the block's rows, for the gradients of the weight and the bias
extern "C" __global__ void __launch_bounds__(1024)
    ddp_add_norm_backward(const bfloat16* __restrict__ dy, const float* __restrict__ dsum, const float* __restrict__ x,
                          const float* __restrict__ weight, const float* __restrict__ statistics,
                          float* __restrict__ dx, bfloat16* __restrict__ dbranch, float* __restrict__ parts,
                          long long rows, long long columns, long long chunk, int centred) {
  DDP_SHARED(float, of_weight);
  float* of_bias = of_weight + columns;
  const long long width = centred ? 2 * columns : columns;
  Sums* shared = reinterpret_cast<Sums*>(of_weight + width);
  DDP_EACH_VECTOR(i, columns) {
    for (int k = 0; k < 4; ++k) {
      of_weight[i + k] = 0.0f;
      if (centred) of_bias[i + k] = 0.0f;
    }
  }
  const long long first = static_cast<long long>(blockIdx.x) * chunk;
  const long long last = first + chunk < rows ? first + chunk : rows;
  for (long long r = first; r < last; ++r) {
    const float mean = statistics[2 * r];
    const float scale = statistics[2 * r + 1];
    Sums own = {0.0f, 0.0f};
    DDP_EACH_VECTOR(i, columns) {
      const Four gradient = *reinterpret_cast<const Four*>(dy + r * columns + i);
      const FourFloats value = *reinterpret_cast<const FourFloats*>(x + r * columns + i);
      for (int k = 0; k < 4; ++k) {
        const float g = to_float(gradient.at[k]);
        const float normal = (value.at[k] - mean) * scale;
        of_weight[i + k] += g * normal;
        if (centred) of_bias[i + k] += g;
        own.a += g * weight[i + k];
        own.b += g * weight[i + k] * normal;
      }
    }
    const Sums all = sum_across_block(own, shared);
    const float shift = centred ? all.a / static_cast<float>(columns) : 0.0f;
    const float tilt = all.b / static_cast<float>(columns);
    DDP_EACH_VECTOR(i, columns) {  // from the cache
      const Four gradient = *reinterpret_cast<const Four*>(dy + r * columns + i);
      FourFloats value = *reinterpret_cast<const FourFloats*>(x + r * columns + i);
      FourFloats other = {{0.0f, 0.0f, 0.0f, 0.0f}};
      if (dsum != nullptr) other = *reinterpret_cast<const FourFloats*>(dsum + r * columns + i);
      Four half;
      for (int k = 0; k < 4; ++k) {
        const float normal = (value.at[k] - mean) * scale;
        value.at[k] = scale * (to_float(gradient.at[k]) * weight[i + k] - shift - normal * tilt) + other.at[k];
        half.at[k] = to_bfloat16(value.at[k]);
      }
      *reinterpret_cast<FourFloats*>(dx + r * columns + i) = value;
      if (dbranch != nullptr) *reinterpret_cast<Four*>(dbranch + r * columns + i) = half;
    }
  }
  float* part = parts + static_cast<long long>(blockIdx.x) * width;
  DDP_EACH_VECTOR(i, columns) {
    for (int k = 0; k < 4; ++k) {
      part[i + k] = of_weight[i + k];
      if (centred) part[columns + i + k] = of_bias[i + k];
    }
  }
}

// The derivative of GELU: of x times the normal distribution's function, or of GPT-2's approximation by tanh.
static __device__ float gelu_derivative(float x, bool by_tanh) {
  if (by_tanh) {
    const float slope = 0.7978845608028654f;  // sqrt(2 / pi)
    const float cubic = 0.044715f;
    const float t = tanhf(slope * (x + cubic * x * x * x));
    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * slope * (1.0f + 3.0f * cubic * x * x);
  }
  const float below = 0.5f * (1.0f + erff(x * 0.7071067811865475f));
  return below + x * 0.3989422804014327f * expf(-0.5f * x * x);
}

// dx = dy gelu'(x), and the column sums over `chunk` rows per block, for the gradient of the bias in x. Any block size.
//   dy, x, dx bfloat16 [N, columns], columns a multiple of 8; parts float [blocks, columns]
extern "C" __global__ void __launch_bounds__(1024)
    ddp_gelu_backward(const bfloat16* __restrict__ dy, const bfloat16* __restrict__ x, bfloat16* __restrict__ dx,
                      float* __restrict__ parts, long long rows, long long columns, long long chunk, int by_tanh) {
  const long long first = static_cast<long long>(blockIdx.x) * chunk;
  const long long last = first + chunk < rows ? first + chunk : rows;
  for (long long i = 8ll * threadIdx.x; i < columns; i += 8ll * blockDim.x) {
    float sums[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    for (long long r = first; r < last; ++r) {
      Eight gradient = *reinterpret_cast<const Eight*>(dy + r * columns + i);
      const Eight value = *reinterpret_cast<const Eight*>(x + r * columns + i);
      for (int k = 0; k < 8; ++k) {
        gradient.at[k] =
            to_bfloat16(to_float(gradient.at[k]) * gelu_derivative(to_float(value.at[k]), by_tanh != 0));
        sums[k] += to_float(gradient.at[k]);
      }
      *reinterpret_cast<Eight*>(dx + r * columns + i) = gradient;
    }
    for (int k = 0; k < 8; ++k) parts[blockIdx.x * columns + i + k] = sums[k];
  }
}

// Tensors of one launch, which are parameters of the kernel: at most 4 KiB. operators.cc has the same.
struct AdamTensors {
  struct Tensor {
    float* weight;
    const float* gradient;
    float* exp_avg;
    float* exp_avg_sq;
    bfloat16* copy;  // the weight's new value once more, or null
    long long size;
  } of[64];
  unsigned first_block[65];  // of each tensor, and behind the last
};

struct AdamOptions {
  float learning_rate, beta1, beta2, weight_decay, epsilon;
  int decoupled;  // AdamW; Adam adds the weight decay to the gradient
};

// One element, as torch's fused kernels do (ATen/native/cuda/fused_adam_utils.cuh). Returns the new weight.
static __device__ float adam_step(const AdamOptions& options, float correction1, float root_of_correction2, float weight,
                                  float gradient, float& exp_avg, float& exp_avg_sq) {
  if (options.weight_decay != 0.0f) {
    if (options.decoupled != 0)
      weight -= options.learning_rate * options.weight_decay * weight;
    else
      gradient += weight * options.weight_decay;
  }
  exp_avg = fmaf(options.beta1, exp_avg, fmaf(-options.beta1, gradient, gradient));
  const float square = gradient * gradient;
  exp_avg_sq = fmaf(options.beta2, exp_avg_sq, fmaf(-options.beta2, square, square));
  const float step_size = options.learning_rate / correction1;
  return weight - step_size * exp_avg / (sqrtf(exp_avg_sq) / root_of_correction2 + options.epsilon);
}

static __device__ bool is_aligned(const void* pointer, unsigned bytes) {
  return reinterpret_cast<unsigned long long>(pointer) % bytes == 0;
}

// Adam (D. Kingma, J. Ba, 2015) or AdamW (I. Loshchilov, F. Hutter, 2019) on `chunk` elements of a tensor per block, a multiple
// of 4. `step`: the number of this update. Nothing changes if `found_inf` is 1. Shared memory: 8 bytes.
extern "C" __global__ void __launch_bounds__(1024)
    ddp_adam(AdamTensors tensors, AdamOptions options, const float* step, const float* found_inf, long long chunk,
             double beta1, double beta2) {
  DDP_SHARED(Sums, corrections);
  if (*found_inf == 1.0f) return;
  if (threadIdx.x == 0) {
    const double count = static_cast<double>(*step);
    corrections->a = static_cast<float>(1.0 - pow(beta1, count));
    corrections->b = static_cast<float>(sqrt(1.0 - pow(beta2, count)));
  }
  __syncthreads();
  const float correction1 = corrections->a;
  const float root = corrections->b;

  int index = 0;
  while (tensors.first_block[index + 1] <= blockIdx.x) ++index;
  const AdamTensors::Tensor tensor = tensors.of[index];
  const long long begin = static_cast<long long>(blockIdx.x - tensors.first_block[index]) * chunk;
  const long long end = begin + chunk < tensor.size ? begin + chunk : tensor.size;
  const bool by_four = is_aligned(tensor.weight, 16) && is_aligned(tensor.gradient, 16) && is_aligned(tensor.exp_avg, 16) &&
                       is_aligned(tensor.exp_avg_sq, 16) && is_aligned(tensor.copy, 8);
  const long long last_four = by_four ? begin + (end - begin) / 4 * 4 : begin;
  for (long long i = begin + 4ll * threadIdx.x; i < last_four; i += 4ll * blockDim.x) {
    FourFloats weight = *reinterpret_cast<const FourFloats*>(tensor.weight + i);
    const FourFloats gradient = *reinterpret_cast<const FourFloats*>(tensor.gradient + i);
    FourFloats exp_avg = *reinterpret_cast<const FourFloats*>(tensor.exp_avg + i);
    FourFloats exp_avg_sq = *reinterpret_cast<const FourFloats*>(tensor.exp_avg_sq + i);
    Four copy;
    for (int k = 0; k < 4; ++k) {
      weight.at[k] = adam_step(options, correction1, root, weight.at[k], gradient.at[k], exp_avg.at[k], exp_avg_sq.at[k]);
      copy.at[k] = to_bfloat16(weight.at[k]);
    }
    *reinterpret_cast<FourFloats*>(tensor.weight + i) = weight;
    *reinterpret_cast<FourFloats*>(tensor.exp_avg + i) = exp_avg;
    *reinterpret_cast<FourFloats*>(tensor.exp_avg_sq + i) = exp_avg_sq;
    if (tensor.copy != nullptr) *reinterpret_cast<Four*>(tensor.copy + i) = copy;
  }
  for (long long i = last_four + threadIdx.x; i < end; i += blockDim.x) {
    float exp_avg = tensor.exp_avg[i];
    float exp_avg_sq = tensor.exp_avg_sq[i];
    const float weight = adam_step(options, correction1, root, tensor.weight[i], tensor.gradient[i], exp_avg, exp_avg_sq);
    tensor.weight[i] = weight;
    tensor.exp_avg[i] = exp_avg;
    tensor.exp_avg_sq[i] = exp_avg_sq;
    if (tensor.copy != nullptr) tensor.copy[i] = to_bfloat16(weight);
  }
}
