// Files of the idx format: arrays of bytes, as in the MNIST database.
//
// After Y. LeCun, "The MNIST database of handwritten digits", section "file formats": two zero
// bytes, the element type, the number of dimensions, each dimension as a big-endian 32-bit number,
// then the elements, the last dimension fastest.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::train {

struct IdxArray {
  std::vector<int64_t> shape;
  std::vector<uint8_t> elements;
};

/// Reads an array of unsigned bytes, plain or compressed by gzip (detected by its content). Throws
/// UserError with the file and what is wrong with it.
IdxArray read_idx(const std::string& path);

}  // namespace ddp::train
