// Kernels for operations that torch splits into several passes over device memory. Compiled by NVRTC for the present device
// when a run starts (kernel_module.h), and as C++ for the host by the tests and the fake GPUs (host_cuda.h). No headers:
// NVRTC has none.
//
// A block's size is any power of two. bfloat16 numbers are handled as their 16 bits, the upper half of a float's.

#ifdef __CUDACC_RTC__
#define DDP_SHARED(type, name) extern __shared__ type name[]
#define INFINITY __int_as_float(0x7f800000)
#endif

typedef unsigned short bfloat16;

struct __align__(16) Eight {
  bfloat16 at[8];
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
//   targets int64 [N]; negative: the row does not count, its loss and gradient are 0
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
      const int count = classes - i < 8 ? static_cast<int>(classes - i) : 8;
      Exponentials these = {-INFINITY, 0.0f};
      for (int k = 0; k < count; ++k) these.largest = fmaxf(these.largest, to_float(eight.at[k]));
      const float base = these.largest == -INFINITY ? 0.0f : these.largest;
      for (int k = 0; k < count; ++k) these.sum += expf(to_float(eight.at[k]) - base);
      own = join(own, these);
    }
  }
  const float of_target = target >= 0 ? to_float(row[target]) : 0.0f;  // before it is overwritten
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
