#include "trainer/snapshot/state_piece.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace ddp::train {
namespace {

bool lies_in(const Box& box, const std::vector<int64_t>& shape) {
  if (box.offsets.size() != shape.size() || box.sizes.size() != shape.size()) return false;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (box.offsets[i] < 0 || box.sizes[i] < 0 || box.offsets[i] > shape[i] - box.sizes[i])
      return false;
  }
  return true;
}

bool overlap(const Box& a, const Box& b) {
  for (std::size_t i = 0; i < a.offsets.size(); ++i) {
    if (a.offsets[i] + a.sizes[i] <= b.offsets[i] || b.offsets[i] + b.sizes[i] <= a.offsets[i])
      return false;
  }
  return true;
}

/// `boxes` sorted by their offsets: only those that begin before one ends along the first dimension
/// can overlap it.
bool any_overlap(const std::vector<Box>& boxes) {
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    for (std::size_t j = i + 1; j < boxes.size(); ++j) {
      const bool beyond =
          !boxes[i].offsets.empty() &&
          boxes[j].offsets.front() >= boxes[i].offsets.front() + boxes[i].sizes.front();
      if (beyond) break;
      if (overlap(boxes[i], boxes[j])) return true;
    }
  }
  return false;
}

/// Boxes in the tensor that do not overlap cover it if they have as many elements.
std::string cover_error(const LogicalTensor& tensor, std::vector<Box> boxes) {
  int64_t elements = 0;
  for (const Box& box : boxes) {
    if (!lies_in(box, tensor.shape)) return fmt::format("a piece of {} lies outside", tensor.name);
    elements += box.elements();
  }
  std::erase_if(boxes, [](const Box& box) { return box.elements() == 0; });
  std::sort(boxes.begin(), boxes.end(),
            [](const Box& a, const Box& b) { return a.offsets < b.offsets; });
  if (any_overlap(boxes)) return fmt::format("elements of {} are there twice", tensor.name);
  if (elements != elements_in(tensor.shape))
    return fmt::format("{} of {} elements of {} are missing", elements_in(tensor.shape) - elements,
                       elements_in(tensor.shape), tensor.name);
  return "";
}

}  // namespace

// No parameter has a '#' in its name.
std::string StatePiece::key() const {
  return number == 0 ? name : fmt::format("{}#{}", name, number);
}

std::string name_of_key(const std::string& key) { return key.substr(0, key.find('#')); }

std::vector<StatePiece> own_share(const std::vector<NamedTensor>& tensors, int rank, int ranks) {
  int64_t total = 0;
  for (const auto& each : tensors) total += static_cast<int64_t>(each.tensor.nbytes());
  // The first byte of a rank's span.
  const auto begin_of = [&](int64_t r) {
    return r * (total / ranks) + r * (total % ranks) / ranks;
  };
  std::vector<StatePiece> pieces;
  int64_t before = 0;  // bytes
  for (const auto& each : tensors) {
    const auto shape = each.tensor.sizes().vec();
    const auto bytes = static_cast<int64_t>(each.tensor.nbytes());
    const int64_t rows = rows_in(shape);
    const int64_t row = rows > 0 ? bytes / rows : 0;
    const auto first_row_of = [&](int64_t r) {
      if (r >= ranks) return rows;
      if (row == 0) return r == 0 ? int64_t{0} : rows;  // no element: the first rank lists it
      return std::clamp((begin_of(r) - before + row - 1) / row, int64_t{0}, rows);
    };
    const int64_t begin = rank == 0 ? 0 : first_row_of(rank);
    const int64_t end = first_row_of(rank + 1);
    const bool empty = bytes == 0 && rank == 0;
    if (begin < end || empty) {
      const auto part = shape.empty() || end - begin == rows
                            ? each.tensor
                            : each.tensor.narrow(0, begin, end - begin);
      pieces.push_back({each.name, shape, Box::rows(shape, begin, end), {part}});
    }
    before += bytes;
  }
  return pieces;
}

NamedTensors parts_of(const std::vector<StatePiece>& pieces) {
  NamedTensors parts;
  for (const auto& piece : pieces) {
    for (const auto& part : piece.parts) parts.emplace_back(piece.name, part);
  }
  return parts;
}

std::vector<TensorBytes> bytes_of_pieces(const std::vector<StatePiece>& pieces,
                                         const std::vector<TensorBytes>& parts) {
  std::vector<TensorBytes> result;
  std::size_t next = 0;
  for (const auto& piece : pieces) {
    TensorBytes bytes = parts.at(next);
    bytes.name = piece.key();
    bytes.shape = piece.box.sizes;
    bytes.size = 0;
    for (std::size_t i = 0; i < piece.parts.size(); ++i) bytes.size += parts.at(next++).size;
    result.push_back(std::move(bytes));
  }
  return result;
}

std::string cover_error(const std::vector<LogicalTensor>& tensors, const BoxesByName& boxes) {
  std::set<std::string> known;
  for (const auto& tensor : tensors) {
    if (!known.insert(tensor.name).second) return tensor.name + " is listed twice";
    const auto found = boxes.find(tensor.name);
    if (found == boxes.end()) return "no piece of " + tensor.name;
    const std::string error = cover_error(tensor, found->second);
    if (!error.empty()) return error;
  }
  for (const auto& [name, of_name] : boxes) {
    if (!known.contains(name)) return "pieces of " + name + ", which is not in the state";
  }
  return "";
}

}  // namespace ddp::train
