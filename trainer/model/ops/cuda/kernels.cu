// Kernels for operations that torch splits into several passes over device memory. Compiled by NVRTC for the present device
// when a run starts (kernel_module.h), and as C++ for the host by the tests and the fake GPUs (host_cuda.h). No headers:
// NVRTC has none.
//
// A block's size is a power of two, or a multiple of 32. bfloat16 numbers are handled as their 16 bits, the upper half of a float's.

#ifdef __CUDACC_RTC__
#define DDP_SHARED(type, name) extern __shared__ __align__(16) type name[]
#define INFINITY __int_as_float(0x7f800000)
#endif

typedef unsigned short bfloat16;
static constexpr bfloat16 kMinusInfinity = 0xff80;

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
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  bfloat16 result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result) : "f"(x));
  return result;
#else
  const unsigned bits = __float_as_uint(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<bfloat16>(bits >> 16 | 0x40u);
  return static_cast<bfloat16>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
#endif
}

// exp(x) to some 20 bits, more than a bfloat16 result keeps: three instructions instead of ten.
static __device__ float fast_exp(float x) {
#ifdef __CUDACC_RTC__
  return __expf(x);
#else
  return expf(x);
#endif
}

static __device__ float fast_reciprocal(float x) {
#ifdef __CUDACC_RTC__
  return __fdividef(1.0f, x);
#else
  return 1.0f / x;
#endif
}

static __device__ bool is_aligned(const void* pointer, unsigned bytes) {
  return reinterpret_cast<unsigned long long>(pointer) % bytes == 0;
}

// The four floats at `from`, in one read where its place allows.
static __device__ FourFloats four_floats(const float* from, bool aligned) {
  if (aligned) return *reinterpret_cast<const FourFloats*>(from);
  return {{from[0], from[1], from[2], from[3]}};
}

// Threads that exchange numbers without shared memory: a warp, or a block of fewer threads.
static __device__ unsigned lanes() { return blockDim.x < 32 ? blockDim.x : 32; }

static __device__ float join(float a, float b) { return a + b; }
static __device__ float from_lane(float own, unsigned far) { return __shfl_xor_sync(~0u, own, static_cast<int>(far)); }
static __device__ double join(double a, double b) { return a + b; }
static __device__ double from_lane(double own, unsigned far) { return __shfl_xor_sync(~0u, own, static_cast<int>(far)); }

// The sum of exp(x - largest) over some x.
struct Exponentials {
  float largest;
  float sum;
};

// The same bits for (a, b) and (b, a).
static __device__ Exponentials join(Exponentials a, Exponentials b) {
  if (a.largest == b.largest) return {a.largest, a.sum + b.sum};
  const Exponentials& high = a.largest > b.largest ? a : b;
  const Exponentials& low = a.largest > b.largest ? b : a;
  return {high.largest, high.sum + low.sum * expf(low.largest - high.largest)};
}

static __device__ Exponentials from_lane(Exponentials own, unsigned far) {
  return {__shfl_xor_sync(~0u, own.largest, static_cast<int>(far)), __shfl_xor_sync(~0u, own.sum, static_cast<int>(far))};
}

// `sum` with eight more numbers.
static __device__ Exponentials with_eight(Exponentials sum, const Eight& eight) {
  float largest = to_float(eight.at[0]);
  for (int k = 1; k < 8; ++k) largest = fmaxf(largest, to_float(eight.at[k]));
  if (largest > sum.largest) {
    sum.sum *= fast_exp(sum.largest - largest);
    sum.largest = largest;
  }
  const float base = sum.largest == -INFINITY ? 0.0f : sum.largest;
  for (int k = 0; k < 8; ++k) sum.sum += fast_exp(to_float(eight.at[k]) - base);
  return sum;
}

// Over all threads of a warp, in a fixed order. On all its threads: join(a, b) is join(b, a).
template <class Number>
static __device__ Number join_across_lanes(Number own, unsigned count) {
  for (unsigned far = count / 2; far > 0; far /= 2) own = join(own, from_lane(own, far));
  return own;
}

// Over all threads of the block, in an order that depends on its size alone. On all threads. `shared`: one for each warp, which
// no thread has read since the last __syncthreads().
template <class Number>
static __device__ Number join_across_block(Number own, Number* shared) {
  own = join_across_lanes(own, lanes());
  const unsigned warps = blockDim.x / lanes();
  if (warps == 1) return own;
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = own;
  __syncthreads();
  if ((warps & (warps - 1)) == 0) return join_across_lanes(shared[threadIdx.x % warps], warps);
  own = shared[0];
  for (unsigned warp = 1; warp < warps; ++warp) own = join(own, shared[warp]);
  return own;
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
      Eight eight = *reinterpret_cast<const Eight*>(row + i);
      if (i + 8 > classes)
        for (int k = 0; k < 8; ++k) eight.at[k] = i + k < classes ? eight.at[k] : kMinusInfinity;
      own = with_eight(own, eight);
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
      const float share = fast_exp(to_float(eight.at[k]) - normaliser) - (i + k == target ? 1.0f : 0.0f);
      eight.at[k] = target >= 0 && i + k < classes ? to_bfloat16(share) : static_cast<bfloat16>(0);
    }
    *reinterpret_cast<Eight*>(row + i) = eight;
  }
}

struct Sums {
  float a, b;
};

static __device__ Sums join(Sums a, Sums b) { return {a.a + b.a, a.b + b.b}; }

static __device__ Sums from_lane(Sums own, unsigned far) {
  return {__shfl_xor_sync(~0u, own.a, static_cast<int>(far)), __shfl_xor_sync(~0u, own.b, static_cast<int>(far))};
}

// The vectors of a row that are this thread's, in every pass over it.
#define DDP_EACH_VECTOR(i, columns) for (long long i = 4ll * threadIdx.x; i < (columns); i += 4ll * blockDim.x)

// One row per block: sum = residual + branch, and its LayerNorm as the next product takes it; without a bias its RMSNorm.
// kOne: no thread has more than one vector of a row, which stays in registers. Otherwise it stays in shared memory, `columns`
// floats. Behind them Sums for each warp, twice.
//   residual float [N, columns], columns a multiple of 4; branch bfloat16 [N, columns], or null: sum is not written
//   y bfloat16 [N, columns]; statistics float [N, 2], mean and 1 / standard deviation, for the backward pass
template <bool kOne>
static __device__ void add_norm(const float* __restrict__ residual, const bfloat16* __restrict__ branch,
                                const float* __restrict__ weight, const float* __restrict__ bias, float* __restrict__ sum,
                                bfloat16* __restrict__ y, float* __restrict__ statistics, long long columns, float epsilon) {
  DDP_SHARED(float, row);
  Sums* shared = reinterpret_cast<Sums*>(row + (kOne ? 0 : columns));
  FourFloats only = {{0.0f, 0.0f, 0.0f, 0.0f}};
  const auto kept = [&](long long i) -> FourFloats& { return kOne ? only : *reinterpret_cast<FourFloats*>(row + i); };
  const bool centred = bias != nullptr;
  const bool weight_aligned = is_aligned(weight, 16);
  const bool bias_aligned = is_aligned(bias, 16);
  const long long start = static_cast<long long>(blockIdx.x) * columns;
  Sums own = {0.0f, 0.0f};
  DDP_EACH_VECTOR(i, columns) {
    FourFloats x = *reinterpret_cast<const FourFloats*>(residual + start + i);
    if (branch != nullptr) {
      const Four added = *reinterpret_cast<const Four*>(branch + start + i);
      for (int k = 0; k < 4; ++k) x.at[k] += to_float(added.at[k]);
      *reinterpret_cast<FourFloats*>(sum + start + i) = x;
    }
    kept(i) = x;
    for (int k = 0; k < 4; ++k) own.a += centred ? x.at[k] : x.at[k] * x.at[k];
  }
  float mean = 0.0f;
  float variance = join_across_block(own, shared).a / static_cast<float>(columns);
  if (centred) {
    mean = variance;
    own.a = 0.0f;
    DDP_EACH_VECTOR(i, columns) {
      const FourFloats x = kept(i);
      for (int k = 0; k < 4; ++k) own.a += (x.at[k] - mean) * (x.at[k] - mean);
    }
    variance = join_across_block(own, shared + 32).a / static_cast<float>(columns);
  }
  const float scale = 1.0f / sqrtf(variance + epsilon);
  if (threadIdx.x == 0) {
    statistics[2ll * blockIdx.x] = mean;
    statistics[2ll * blockIdx.x + 1] = scale;
  }
  DDP_EACH_VECTOR(i, columns) {
    const FourFloats x = kept(i);
    const FourFloats factor = four_floats(weight + i, weight_aligned);
    FourFloats shift = {{0.0f, 0.0f, 0.0f, 0.0f}};
    if (centred) shift = four_floats(bias + i, bias_aligned);
    Four four;
    for (int k = 0; k < 4; ++k) four.at[k] = to_bfloat16((x.at[k] - mean) * scale * factor.at[k] + shift.at[k]);
    *reinterpret_cast<Four*>(y + start + i) = four;
  }
}

extern "C" __global__ void __launch_bounds__(1024)
    ddp_add_norm(const float* __restrict__ residual, const bfloat16* __restrict__ branch,
                 const float* __restrict__ weight, const float* __restrict__ bias, float* __restrict__ sum,
                 bfloat16* __restrict__ y, float* __restrict__ statistics, long long columns, float epsilon) {
  if (4ll * blockDim.x >= columns)
    add_norm<true>(residual, branch, weight, bias, sum, y, statistics, columns, epsilon);
  else
    add_norm<false>(residual, branch, weight, bias, sum, y, statistics, columns, epsilon);
}

// A thread's part of a row in the backward pass.
struct NormGradients {
  Four y;
  FourFloats sum, x;
};

// The gradients of ddp_add_norm's inputs, from those of its results; `chunk` rows per block, one after the other. kOne: as
// above; sums over rows stay in registers, and a row is read while the one before it is computed. Otherwise sums are in shared
// memory, `columns` floats for each row of `parts`. Behind them Sums for each warp, twice: for rows in turn.
//   dy bfloat16 [N, columns]; dsum float, of sum's other uses, or null; x: what was normalised
//   dx float [N, columns]; dbranch bfloat16, the same once more, or null
//   parts float [blocks, centred ? 2 : 1, columns]: sums over the block's rows, for the gradients of the weight and the bias
template <bool kOne>
static __device__ void add_norm_backward(const bfloat16* __restrict__ dy, const float* __restrict__ dsum,
                                         const float* __restrict__ x, const float* __restrict__ weight,
                                         const float* __restrict__ statistics, float* __restrict__ dx,
                                         bfloat16* __restrict__ dbranch, float* __restrict__ parts, long long rows,
                                         long long columns, long long chunk, bool centred) {
  DDP_SHARED(float, sums);
  const FourFloats zeros = {{0.0f, 0.0f, 0.0f, 0.0f}};
  const long long width = centred ? 2 * columns : columns;
  Sums* shared = reinterpret_cast<Sums*>(sums + (kOne ? 0 : width));
  FourFloats only_weight = zeros, only_bias = zeros;
  const auto of_weight = [&](long long i) -> FourFloats& {
    return kOne ? only_weight : *reinterpret_cast<FourFloats*>(sums + i);
  };
  const auto of_bias = [&](long long i) -> FourFloats& {
    return kOne ? only_bias : *reinterpret_cast<FourFloats*>(sums + columns + i);
  };
  const auto read = [&](long long r, long long i) {
    NormGradients given = {*reinterpret_cast<const Four*>(dy + r * columns + i), zeros,
                           *reinterpret_cast<const FourFloats*>(x + r * columns + i)};
    if (dsum != nullptr) given.sum = *reinterpret_cast<const FourFloats*>(dsum + r * columns + i);
    return given;
  };
  const bool weight_aligned = is_aligned(weight, 16);
  DDP_EACH_VECTOR(i, columns) {
    of_weight(i) = zeros;
    if (centred) of_bias(i) = zeros;
  }
  const long long first = static_cast<long long>(blockIdx.x) * chunk;
  const long long last = first + chunk < rows ? first + chunk : rows;
  NormGradients next = {{{0, 0, 0, 0}}, zeros, zeros};
  if (kOne && first < last) DDP_EACH_VECTOR(i, columns) next = read(first, i);
  for (long long r = first; r < last; ++r) {
    const NormGradients only = next;
    const float mean = statistics[2 * r];
    const float scale = statistics[2 * r + 1];
    if (kOne && r + 1 < last) DDP_EACH_VECTOR(i, columns) next = read(r + 1, i);
    Sums own = {0.0f, 0.0f};
    DDP_EACH_VECTOR(i, columns) {
      const NormGradients given = kOne ? only : read(r, i);
      const FourFloats factor = four_floats(weight + i, weight_aligned);
      FourFloats weights = of_weight(i);
      FourFloats biases = centred ? of_bias(i) : zeros;
      for (int k = 0; k < 4; ++k) {
        const float g = to_float(given.y.at[k]);
        const float normal = (given.x.at[k] - mean) * scale;
        weights.at[k] += g * normal;
        biases.at[k] += g;
        own.a += g * factor.at[k];
        own.b += g * factor.at[k] * normal;
      }
      of_weight(i) = weights;
      if (centred) of_bias(i) = biases;
    }
    const Sums all = join_across_block(own, shared + r % 2 * 32);
    const float shift = centred ? all.a / static_cast<float>(columns) : 0.0f;
    const float tilt = all.b / static_cast<float>(columns);
    DDP_EACH_VECTOR(i, columns) {
      const NormGradients given = kOne ? only : read(r, i);
      const FourFloats factor = four_floats(weight + i, weight_aligned);
      FourFloats value;
      Four half;
      for (int k = 0; k < 4; ++k) {
        const float normal = (given.x.at[k] - mean) * scale;
        value.at[k] = scale * (to_float(given.y.at[k]) * factor.at[k] - shift - normal * tilt) + given.sum.at[k];
        half.at[k] = to_bfloat16(value.at[k]);
      }
      *reinterpret_cast<FourFloats*>(dx + r * columns + i) = value;
      if (dbranch != nullptr) *reinterpret_cast<Four*>(dbranch + r * columns + i) = half;
    }
  }
  float* part = parts + static_cast<long long>(blockIdx.x) * width;
  DDP_EACH_VECTOR(i, columns) {
    *reinterpret_cast<FourFloats*>(part + i) = of_weight(i);
    if (centred) *reinterpret_cast<FourFloats*>(part + columns + i) = of_bias(i);
  }
}

extern "C" __global__ void __launch_bounds__(1024)
    ddp_add_norm_backward(const bfloat16* __restrict__ dy, const float* __restrict__ dsum, const float* __restrict__ x,
                          const float* __restrict__ weight, const float* __restrict__ statistics,
                          float* __restrict__ dx, bfloat16* __restrict__ dbranch, float* __restrict__ parts,
                          long long rows, long long columns, long long chunk, int centred) {
  if (4ll * blockDim.x >= columns)
    add_norm_backward<true>(dy, dsum, x, weight, statistics, dx, dbranch, parts, rows, columns, chunk, centred != 0);
  else
    add_norm_backward<false>(dy, dsum, x, weight, statistics, dx, dbranch, parts, rows, columns, chunk, centred != 0);
}

struct Normal {
  float below;    // the normal distribution's function
  float density;
};

// The error function to 1.5e-7 (M. Abramowitz, I. Stegun, 7.1.26): its exponential is that of the density.
static __device__ Normal normal(float x) {
  const float z = fabsf(x) * 0.7071067811865475f;
  const float t = fast_reciprocal(1.0f + 0.3275911f * z);
  const float bell = fast_exp(-z * z);
  const float series = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
  const float beyond = 0.5f * series * bell;
  return {x < 0.0f ? beyond : 1.0f - beyond, 0.3989422804014327f * bell};
}

static constexpr float kGeluSlope = 0.7978845608028654f;  // sqrt(2 / pi)
static constexpr float kGeluCubic = 0.044715f;

// x times the normal distribution's function, or GPT-2's approximation by tanh.
static __device__ float gelu(float x, bool by_tanh) {
  if (by_tanh) return 0.5f * x * (1.0f + tanhf(kGeluSlope * (x + kGeluCubic * x * x * x)));
  return x * normal(x).below;
}

static __device__ float gelu_derivative(float x, bool by_tanh) {
  if (by_tanh) {
    const float t = tanhf(kGeluSlope * (x + kGeluCubic * x * x * x));
    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * kGeluSlope * (1.0f + 3.0f * kGeluCubic * x * x);
  }
  const Normal n = normal(x);
  return n.below + x * n.density;
}

// y = gelu(x), `chunk` numbers per block.
//   x, y bfloat16 [count], count and chunk multiples of 8
extern "C" __global__ void __launch_bounds__(512)
    ddp_gelu(const bfloat16* __restrict__ x, bfloat16* __restrict__ y, long long count, long long chunk, int by_tanh) {
  const long long begin = chunk * blockIdx.x;
  const long long end = begin + chunk < count ? begin + chunk : count;
  for (long long i = begin + 8ll * threadIdx.x; i < end; i += 8ll * blockDim.x) {
    Eight eight = *reinterpret_cast<const Eight*>(x + i);
    for (int k = 0; k < 8; ++k) eight.at[k] = to_bfloat16(gelu(to_float(eight.at[k]), by_tanh != 0));
    *reinterpret_cast<Eight*>(y + i) = eight;
  }
}

static __device__ void add(float* sums, const Eight& eight) {
  for (int k = 0; k < 8; ++k) sums[k] += to_float(eight.at[k]);
}

// Sums over rows of bfloat16 numbers, `value(r, i)` the eight at column i of row r: a block has `chunk` rows of `tile` columns,
// and each of its warps every so many rows, kAtOnce of them under way at a time. Adjacent blocks
// have the tiles of the same rows. Shared memory: 8 floats for each thread.
//   parts float [chunks, columns], columns and tile multiples of 8
template <int kAtOnce, class Value>
static __device__ void sum_columns(float* __restrict__ parts, long long rows, long long columns, long long chunk,
                                   long long tile, const Value& value) {
  DDP_SHARED(float, lane_sums);
  const unsigned tiles = static_cast<unsigned>((columns + tile - 1) / tile);
  const long long part = blockIdx.x / tiles;
  const long long first = part * chunk;
  const long long last = first + chunk < rows ? first + chunk : rows;
  const long long begin = blockIdx.x % tiles * tile;
  const long long end = begin + tile < columns ? begin + tile : columns;
  const unsigned warps = blockDim.x / lanes();
  for (long long base = begin; base < end; base += 8ll * lanes()) {
    const long long i = base + 8ll * (threadIdx.x % lanes());
    float sums[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    if (i < end) {
      long long r = first + threadIdx.x / lanes();
      for (; r + (kAtOnce - 1) * warps < last; r += kAtOnce * warps) {
        Eight eight[kAtOnce];
        for (int row = 0; row < kAtOnce; ++row) eight[row] = value(r + row * warps, i);
        for (int row = 0; row < kAtOnce; ++row) add(sums, eight[row]);
      }
      for (; kAtOnce > 1 && r < last; r += warps) add(sums, value(r, i));
    }
    for (int k = 0; k < 8; ++k) lane_sums[k * blockDim.x + threadIdx.x] = sums[k];
    __syncthreads();
    if (threadIdx.x < lanes() && i < end) {
      for (int k = 0; k < 8; ++k) {
        float sum = 0.0f;
        for (unsigned warp = 0; warp < warps; ++warp) sum += lane_sums[k * blockDim.x + warp * lanes() + threadIdx.x];
        parts[part * columns + i + k] = sum;
      }
    }
    __syncthreads();  // the sums have been read
  }
}

// dx = dy gelu'(x), and its column sums by parts, for the gradient of the bias in x.
//   dy, x, dx bfloat16 [N, columns]
extern "C" __global__ void __launch_bounds__(512)
    ddp_gelu_backward(const bfloat16* __restrict__ dy, const bfloat16* __restrict__ x, bfloat16* __restrict__ dx,
                      float* __restrict__ parts, long long rows, long long columns, long long chunk, long long tile,
                      int by_tanh) {
  sum_columns<1>(parts, rows, columns, chunk, tile, [&](long long r, long long i) {
    Eight gradient = *reinterpret_cast<const Eight*>(dy + r * columns + i);
    const Eight value = *reinterpret_cast<const Eight*>(x + r * columns + i);
    for (int k = 0; k < 8; ++k)
      gradient.at[k] = to_bfloat16(to_float(gradient.at[k]) * gelu_derivative(to_float(value.at[k]), by_tanh != 0));
    *reinterpret_cast<Eight*>(dx + r * columns + i) = gradient;
    return gradient;
  });
}

// The column sums of x, bfloat16 [N, columns], by parts: the gradient of a bias.
extern "C" __global__ void __launch_bounds__(512)
    ddp_column_sums(const bfloat16* __restrict__ x, float* __restrict__ parts, long long rows, long long columns,
                    long long chunk, long long tile) {
  sum_columns<4>(parts, rows, columns, chunk, tile,
                 [&](long long r, long long i) { return *reinterpret_cast<const Eight*>(x + r * columns + i); });
}

// Three tensors next to each other in one, and its column sums by parts: the gradient of a product whose output is used in
// thirds, and of its bias.
//   a, b, c bfloat16 [N, columns / 3]; joined bfloat16 [N, columns], columns a multiple of 24
extern "C" __global__ void __launch_bounds__(512)
    ddp_join_thirds(const bfloat16* __restrict__ a, const bfloat16* __restrict__ b, const bfloat16* __restrict__ c,
                    bfloat16* __restrict__ joined, float* __restrict__ parts, long long rows, long long columns,
                    long long chunk, long long tile) {
  const long long third = columns / 3;
  sum_columns<4>(parts, rows, columns, chunk, tile, [&](long long r, long long i) {
    const bfloat16* from = i < third ? a + i : i < 2 * third ? b + (i - third) : c + (i - 2 * third);
    const Eight value = *reinterpret_cast<const Eight*>(from + r * third);
    *reinterpret_cast<Eight*>(joined + r * columns + i) = value;
    return value;
  });
}

// Gradients of one launch, which are parameters of the kernel. operators.cc has the same.
struct SquaredTensors {
  struct Tensor {
    const float* data;
    long long size;
  } of[128];
  unsigned first_block[129];  // of each tensor, and after the last
};

// The sum of squares of `count` floats over all threads of a warp.
static __device__ double squares(const float* data, long long count) {
  const bool aligned = is_aligned(data, 16);
  double own = 0.0;
  for (long long i = 4ll * (threadIdx.x % lanes()); i < count; i += 4ll * lanes()) {
    FourFloats x = {{0.0f, 0.0f, 0.0f, 0.0f}};
    if (i + 4 <= count)
      x = four_floats(data + i, aligned);
    else
      for (int k = 0; k < count - i; ++k) x.at[k] = data[i + k];
    for (int k = 0; k < 4; ++k) own += static_cast<double>(x.at[k]) * static_cast<double>(x.at[k]);
  }
  return join_across_lanes(own, lanes());
}

// Sums of squares in float64, one for each 1,024 elements of a tensor, the last one of a tensor over fewer: the same bits wherever
// a tensor begins and whatever is next to it. A warp computes one sum, a block 16 of them.
//   sums double [first_block[count]]
extern "C" __global__ void __launch_bounds__(512)
    ddp_sums_of_squares(SquaredTensors tensors, double* __restrict__ sums, int count) {
  for (unsigned k = threadIdx.x / lanes(); k < 16; k += blockDim.x / lanes()) {
    const unsigned sum = 16 * blockIdx.x + k;
    int low = 0;  // the last tensor that does not begin after the sum's elements
    for (int high = count; high - low > 1;) {
      const int middle = (low + high) / 2;
      (tensors.first_block[middle] <= sum ? low : high) = middle;
    }
    const SquaredTensors::Tensor tensor = tensors.of[low];
    const long long begin = 1024ll * (sum - tensors.first_block[low]);
    const long long left = sum < tensors.first_block[count] ? tensor.size - begin : 0;
    const double total = squares(tensor.data + begin, left < 1024 ? left : 1024);
    if (left > 0 && threadIdx.x % lanes() == 0) sums[sum] = total;
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
  unsigned first_block[65];  // of each tensor, and after the last
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

// Adam (D. Kingma, J. Ba, 2015) or AdamW (I. Loshchilov, F. Hutter, 2019) on `chunk` elements of a tensor per block, a multiple
// of 4. `step`: the number of this update; `scale`, or null: gradients are multiplied by it first, as if a pass before had done
// it. Nothing changes if `found_inf` is 1. Shared memory: 8 bytes.
extern "C" __global__ void __launch_bounds__(1024)
    ddp_adam(AdamTensors tensors, AdamOptions options, const float* step, const float* found_inf, const float* scale,
             long long chunk, double beta1, double beta2) {
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
  const float factor = scale != nullptr ? *scale : 1.0f;

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
      weight.at[k] = adam_step(options, correction1, root, weight.at[k], __fmul_rn(gradient.at[k], factor), exp_avg.at[k],
                               exp_avg_sq.at[k]);
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
    const float weight =
        adam_step(options, correction1, root, tensor.weight[i], __fmul_rn(tensor.gradient[i], factor), exp_avg, exp_avg_sq);
    tensor.weight[i] = weight;
    tensor.exp_avg[i] = exp_avg;
    tensor.exp_avg_sq[i] = exp_avg_sq;
    if (tensor.copy != nullptr) tensor.copy[i] = to_bfloat16(weight);
  }
}
