// Llama's element-wise operations: after kernels.cu in its file.

// y = silu(gate) up, `chunk` numbers per block.
//   gate, up, y bfloat16 [count], count and chunk multiples of 8
extern "C" __global__ void __launch_bounds__(512)
    ddp_swiglu(const bfloat16* __restrict__ gate, const bfloat16* __restrict__ up, bfloat16* __restrict__ y, long long count,
               long long chunk) {
  const long long begin = chunk * blockIdx.x;
  const long long end = begin + chunk < count ? begin + chunk : count;
  for (long long i = begin + 8ll * threadIdx.x; i < end; i += 8ll * blockDim.x) {
    Eight g = *reinterpret_cast<const Eight*>(gate + i);
    const Eight u = *reinterpret_cast<const Eight*>(up + i);
    for (int k = 0; k < 8; ++k) {
      const float x = to_float(g.at[k]);
      g.at[k] = to_bfloat16(x * fast_reciprocal(1.0f + fast_exp(-x)) * to_float(u.at[k]));
    }
    *reinterpret_cast<Eight*>(y + i) = g;
  }
}

// The gradients of ddp_swiglu's inputs from that of y.
extern "C" __global__ void __launch_bounds__(512)
    ddp_swiglu_backward(const bfloat16* __restrict__ dy, const bfloat16* __restrict__ gate, const bfloat16* __restrict__ up,
                        bfloat16* __restrict__ dgate, bfloat16* __restrict__ dup, long long count, long long chunk) {
  const long long begin = chunk * blockIdx.x;
  const long long end = begin + chunk < count ? begin + chunk : count;
  for (long long i = begin + 8ll * threadIdx.x; i < end; i += 8ll * blockDim.x) {
    const Eight d = *reinterpret_cast<const Eight*>(dy + i);
    Eight g = *reinterpret_cast<const Eight*>(gate + i);
    Eight u = *reinterpret_cast<const Eight*>(up + i);
    for (int k = 0; k < 8; ++k) {
      const float x = to_float(g.at[k]);
      const float share = fast_reciprocal(1.0f + fast_exp(-x));
      const float gradient = to_float(d.at[k]);
      g.at[k] = to_bfloat16(gradient * to_float(u.at[k]) * share * (1.0f + x * (1.0f - share)));
      u.at[k] = to_bfloat16(gradient * x * share);
    }
    *reinterpret_cast<Eight*>(dgate + i) = g;
    *reinterpret_cast<Eight*>(dup + i) = u;
  }
}

// The heads of each token turned by its position, the pairs (i, i + dim / 2) of a head's numbers by their angles; `way`: 1, or
// -1 for gradients. For queries and keys at once; `chunk` pieces of eight pairs per block.
//   q, rotated_q bfloat16 [tokens, heads, dim]; k, rotated_k [tokens, key_heads, dim]; dim a multiple of 16
//   cos, sin float [positions, dim / 2]; token t has position t % positions
extern "C" __global__ void __launch_bounds__(512)
    ddp_rotate(const bfloat16* __restrict__ q, const bfloat16* __restrict__ k, const float* __restrict__ cos,
               const float* __restrict__ sin, bfloat16* __restrict__ rotated_q, bfloat16* __restrict__ rotated_k,
               long long tokens, long long heads, long long key_heads, long long dim, long long positions, long long chunk,
               float way) {
  const long long half = dim / 2;
  const long long pieces = half / 8;
  const long long of_token = (heads + key_heads) * pieces;
  const long long begin = chunk * blockIdx.x;
  const long long end = begin + chunk < tokens * of_token ? begin + chunk : tokens * of_token;
  for (long long piece = begin + threadIdx.x; piece < end; piece += blockDim.x) {
    const long long token = piece / of_token;
    const long long head = piece % of_token / pieces;
    const long long column = piece % pieces * 8;
    const bool of_query = head < heads;
    const long long place = (of_query ? token * heads + head : token * key_heads + head - heads) * dim + column;
    const bfloat16* from = (of_query ? q : k) + place;
    bfloat16* to = (of_query ? rotated_q : rotated_k) + place;
    Eight a = *reinterpret_cast<const Eight*>(from);
    Eight b = *reinterpret_cast<const Eight*>(from + half);
    const long long angle = token % positions * half + column;
    for (int i = 0; i < 8; ++i) {
      const float c = cos[angle + i];
      const float s = way * sin[angle + i];
      const float x = to_float(a.at[i]);
      const float y = to_float(b.at[i]);
      a.at[i] = to_bfloat16(x * c - y * s);
      b.at[i] = to_bfloat16(y * c + x * s);
    }
    *reinterpret_cast<Eight*>(to) = a;
    *reinterpret_cast<Eight*>(to + half) = b;
  }
}
