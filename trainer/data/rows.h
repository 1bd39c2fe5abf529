// A tensor of a batch that is filled row by row.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ddp::train {

template <typename T>
class Rows {
 public:
  /// `rows` rows of `shape`, uninitialized, on the CPU.
  Rows(std::size_t rows, std::vector<int64_t> shape, bool pinned) {
    shape.insert(shape.begin(), static_cast<int64_t>(rows));
    constexpr auto kType = c10::CppTypeToScalarType<T>::value;
    tensor_ = torch::empty(shape, torch::TensorOptions(kType).pinned_memory(pinned));
    row_size_ = rows == 0 ? 0 : static_cast<std::size_t>(tensor_.numel()) / rows;
  }

  std::span<T> operator[](std::size_t row) {
    return {tensor_.mutable_data_ptr<T>() + row * row_size_, row_size_};
  }
  const torch::Tensor& tensor() const { return tensor_; }

 private:
  torch::Tensor tensor_;
  std::size_t row_size_ = 0;
};

/// `values` as a tensor of one dimension.
template <typename T>
torch::Tensor tensor_of(std::span<const T> values, bool pinned) {
  Rows<T> copy(values.size(), {}, pinned);
  std::copy(values.begin(), values.end(), copy.tensor().template mutable_data_ptr<T>());
  return copy.tensor();
}

}  // namespace ddp::train
