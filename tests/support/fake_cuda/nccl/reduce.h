// Element-wise reductions over the ranks' buffers, in the order of the ranks.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <vector>

namespace fake_nccl {

std::size_t bytes_of(ncclDataType_t type);

/// out[i] = in[0][i] op in[1][i] op ...; an operator of ncclRedOpCreatePreMulSum multiplies each
/// element by `factor` first. `out` may be one of the inputs. Ends the process on a type or
/// operator that NCCL has and this does not.
void reduce(char* out, const std::vector<const char*>& in, std::size_t count, ncclDataType_t type,
            int op, double factor);

/// The scalar of ncclRedOpCreatePreMulSum as a number.
double scalar_of(const void* scalar, ncclDataType_t type);

}  // namespace fake_nccl
