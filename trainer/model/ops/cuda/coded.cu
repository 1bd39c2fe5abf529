// Frozen weights in 4 or 8 bits (weight_codec.h): after kernels.cu in its file.

struct __align__(8) EightBytes {
  signed char at[8];
};
struct EightFloats {
  float at[8];
};

// A matrix in codes, a parameter of the kernels. coded_operators.cc has the same.
struct Coded {
  const unsigned char* codes;  // NF4: two in a byte, the first in its upper half. int8: one
  const void* absmax;          // of each 64 numbers, or with int8 of each row: float, or codes of 8 bits if they have scales
  const float* absmax_scales;  // of each 256 codes, or null
  const float* absmax_mean;
  long long first_block;  // in absmax
  int columns;            // a multiple of 8, with NF4 of 64
  int four_bits;
  float values[16];       // of NF4's codes
  float map[256];         // of absmax's codes
};

// Copies NF4's values to shared memory, where lanes can read different ones at a time. Every thread of the block calls it.
static __device__ const float* values_of(const Coded& weight, float* shared) {
  for (unsigned k = threadIdx.x; k < 16; k += blockDim.x) shared[k] = weight.values[k];
  __syncthreads();
  return shared;
}

static __device__ float scale_of(const Coded& weight, long long block) {
  block += weight.first_block;
  if (weight.absmax_scales == nullptr) return static_cast<const float*>(weight.absmax)[block];
  const float share = weight.map[static_cast<const unsigned char*>(weight.absmax)[block]];
  return __fmul_rn(share, weight.absmax_scales[block / 256]) + *weight.absmax_mean;
}

// The eight numbers from `i` on, a multiple of 8. Rounded as on a CPU.
static __device__ EightFloats decoded(const Coded& weight, const float* values, long long i) {
  EightFloats x;
  if (weight.four_bits != 0) {
    const float scale = scale_of(weight, i / 64);
    const unsigned codes = *reinterpret_cast<const unsigned*>(weight.codes + i / 2);
    for (int k = 0; k < 8; ++k) x.at[k] = values[(codes >> (k / 2 * 8 + 4 - k % 2 * 4)) & 15u] * scale;
  } else {
    const float scale = scale_of(weight, i / weight.columns);
    const EightBytes codes = *reinterpret_cast<const EightBytes*>(weight.codes + i);
    for (int k = 0; k < 8; ++k) x.at[k] = static_cast<float>(codes.at[k]) * scale * 7.874015718698502e-3f;  // 1 / 127
  }
  return x;
}

// float16's bits, to the nearest, ties to even.
static __device__ unsigned short to_float16(float x) {
#ifdef __CUDACC_RTC__
  unsigned short result;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result) : "f"(x));
  return result;
#else
  const unsigned bits = __float_as_uint(fabsf(x));
  const unsigned sign = __float_as_uint(x) >> 16 & 0x8000u;
  if (bits >= 0x47800000u) return static_cast<unsigned short>(sign | (bits > 0x7f800000u ? 0x7e00u : 0x7c00u));
  if (bits < 0x38800000u) return static_cast<unsigned short>(sign | (__float_as_uint(fabsf(x) + 0.5f) - 0x3f000000u));
  return static_cast<unsigned short>(sign | ((bits - 0x38000000u + 0xfffu + (bits >> 13 & 1u)) >> 13));
#endif
}

// Numbers of `weight`, `chunk` per block.
//   out [count] of the type: 0 float, 1 bfloat16, 2 float16; count and chunk multiples of 8. Shared memory: 16 floats
extern "C" __global__ void __launch_bounds__(512)
    ddp_dequantize(Coded weight, void* __restrict__ out, long long count, long long chunk, int type) {
  DDP_SHARED(float, nf4_values);
  const float* values = values_of(weight, nf4_values);
  const long long begin = chunk * blockIdx.x;
  const long long end = begin + chunk < count ? begin + chunk : count;
  for (long long i = begin + 8ll * threadIdx.x; i < end; i += 8ll * blockDim.x) {
    const EightFloats x = decoded(weight, values, i);
    if (type == 0) {
      for (int k = 0; k < 8; k += 4)
        *reinterpret_cast<FourFloats*>(static_cast<float*>(out) + i + k) = {{x.at[k], x.at[k + 1], x.at[k + 2], x.at[k + 3]}};
      continue;
    }
    Eight eight;
    for (int k = 0; k < 8; ++k) eight.at[k] = type == 1 ? to_bfloat16(x.at[k]) : to_float16(x.at[k]);
    *reinterpret_cast<Eight*>(static_cast<unsigned short*>(out) + i) = eight;
  }
}

// The eight numbers at `i` of x, float or bfloat16.
static __device__ EightFloats eight_of(const void* x, long long i, bool halves) {
  EightFloats result;
  if (halves) {
    const Eight eight = *reinterpret_cast<const Eight*>(static_cast<const bfloat16*>(x) + i);
    for (int k = 0; k < 8; ++k) result.at[k] = to_float(eight.at[k]);
  } else {
    for (int k = 0; k < 8; ++k) result.at[k] = static_cast<const float*>(x)[i + k];
  }
  return result;
}

// y = x weight^T for a few x: a warp computes the sums of a row of `weight` and reads each code once; a block has 8 rows.
//   x [count, columns], y [count, rows], float or bfloat16; count at most 4. Shared memory: 16 floats
extern "C" __global__ void __launch_bounds__(256)
    ddp_coded_product(Coded weight, const void* __restrict__ x, void* __restrict__ y, int count, int rows, int halves) {
  DDP_SHARED(float, nf4_values);
  const float* values = values_of(weight, nf4_values);
  for (unsigned k = threadIdx.x / lanes(); k < 8; k += blockDim.x / lanes()) {
    const int row = static_cast<int>(8 * blockIdx.x + k);
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    const int columns = row < rows ? weight.columns : 0;
    for (int c = static_cast<int>(8 * (threadIdx.x % lanes())); c < columns; c += static_cast<int>(8 * lanes())) {
      const EightFloats numbers = decoded(weight, values, static_cast<long long>(row) * columns + c);
      for (int n = 0; n < 4; ++n) {
        if (n >= count) continue;
        const EightFloats given = eight_of(x, static_cast<long long>(n) * columns + c, halves != 0);
        for (int i = 0; i < 8; ++i) sums[n] += numbers.at[i] * given.at[i];
      }
    }
    for (int n = 0; n < 4; ++n) {
      const float sum = join_across_lanes(sums[n], lanes());
      if (n >= count || row >= rows || threadIdx.x % lanes() != 0) continue;
      const long long place = static_cast<long long>(n) * rows + row;
      if (halves != 0)
        static_cast<bfloat16*>(y)[place] = to_bfloat16(sum);
      else
        static_cast<float*>(y)[place] = sum;
    }
  }
}
