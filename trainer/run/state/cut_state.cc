#include "trainer/run/state/cut_state.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "trainer/run/state/mapped_tensor.h"
#include "trainer/run/state/shared_snapshot.h"
#include "trainer/snapshot/state_piece.h"

namespace ddp::train {
namespace {

/// Calls copy() for each range, with the views of it in the rank's tensor and in the whole one.
template <class Copy>
void for_each_range(const ParameterCut& cut, const torch::Tensor& held, const torch::Tensor& whole,
                    const Copy& copy) {
  int64_t at = 0;
  for (const CutRange& range : cut.ranges) {
    copy(held.narrow(cut.dim, at, range.size()), whole.narrow(cut.dim, range.begin, range.size()));
    at += range.size();
  }
}

bool is_scalar(const ParameterCut& cut) { return cut.shape.empty(); }

void take_part(const ParameterCut& cut, const torch::Tensor& whole, const torch::Tensor& held) {
  if (is_scalar(cut)) {
    held.copy_(whole);
    return;
  }
  held.zero_();
  for_each_range(cut, held, whole,
                 [](const torch::Tensor& to, const torch::Tensor& from) { to.copy_(from); });
}

void give_part(const ParameterCut& cut, const torch::Tensor& held, const torch::Tensor& whole) {
  if (is_scalar(cut)) {
    whole.copy_(held);
    return;
  }
  for_each_range(cut, held, whole,
                 [](const torch::Tensor& from, const torch::Tensor& to) { to.copy_(from); });
}

/// Rows are read as such; of a cut along another dimension the whole tensor.
void read_part(const OpenedSnapshot& snapshot, const std::string& name, const ParameterCut& cut,
               const torch::Tensor& held) {
  if (is_scalar(cut) || cut.dim != 0) {
    const auto whole = torch::empty(cut.shape, held.options().device(torch::kCPU));
    snapshot.load_into(name, whole);
    take_part(cut, whole, held);
    return;
  }
  held.zero_();
  const int64_t row = row_elements(cut.shape);
  int64_t at = 0;
  for (const CutRange& range : cut.ranges) {
    if (range.size() > 0)
      snapshot.load_part_into(name, cut.shape, range.begin * row, held.narrow(0, at, range.size()));
    at += range.size();
  }
}

/// The same bytes as integers, whose sums with zeros are exact, unlike those of -0.0 and NaN.
torch::Tensor as_integers(const torch::Tensor& tensor) {
  switch (tensor.element_size()) {
    case 4:
      return tensor.view(torch::kInt32);
    case 8:
      return tensor.view(torch::kInt64);
    default:
      return tensor.view(-1).view(torch::kUInt8);
  }
}

}  // namespace

/// A tensor that some rank holds a part of.
struct CutState::Whole {
  std::string name;
  torch::ScalarType type = torch::kFloat32;
  std::vector<int64_t> shape;
};

std::string parameter_of(const std::string& tensor) {
  const std::string name = tensor.substr(tensor.find('.') + 1);
  return tensor.starts_with("optimizer.") ? name.substr(0, name.rfind('.')) : name;
}

const ParameterCut& CutState::cut_of(const std::string& tensor) const {
  const auto found = cuts_.find(parameter_of(tensor));
  TORCH_CHECK(found != cuts_.end(), "no cut of ", tensor);
  return found->second;
}

bool CutState::holds_whole(const std::string& tensor) const {
  const ParameterCut& cut = cut_of(tensor);
  const CutRange all{0, is_scalar(cut) ? 1 : cut.shape[static_cast<std::size_t>(cut.dim)]};
  return cut.ranges == std::vector{all};
}

// A rank knows what it holds itself only.
std::vector<CutState::Whole> CutState::wholes_of(const std::vector<NamedTensor>& held,
                                                 ProcessGroup& group, bool counted_only) const {
  std::string own;
  for (const auto& each : held) {
    const ParameterCut& cut = cut_of(each.name);
    if (counted_only && !cut.counted) continue;
    own += fmt::format("{} {} {} {}\n", each.name, static_cast<int>(each.tensor.scalar_type()),
                       cut.shape.size(), fmt::join(cut.shape, " "));
  }
  std::vector<Whole> all;
  std::set<std::string> seen;
  for (const auto& text : group.gather_texts(own)) {
    std::istringstream words(text);
    Whole whole;
    int type = 0;
    std::size_t dimensions = 0;
    while (words >> whole.name >> type >> dimensions) {
      whole.type = static_cast<torch::ScalarType>(type);
      whole.shape.resize(dimensions);
      for (int64_t& size : whole.shape) words >> size;
      if (seen.insert(whole.name).second) all.push_back(whole);
    }
  }
  return all;
}

std::vector<NamedTensor> CutState::gather(std::vector<NamedTensor> held) {
  std::vector<NamedTensor> gathered;
  if (mesh_.place().data != 0) return gathered;
  const torch::NoGradGuard no_grad;
  ProcessGroup& group = mesh_.model();
  const auto wholes = wholes_of(held, group, /*counted_only=*/true);
  for (const Whole& whole : wholes) {
    auto tensor = mapped_zeros(whole.shape, whole.type);
    for (auto& each : held) {
      if (each.name != whole.name) continue;
      if (cut_of(each.name).counted) give_part(cut_of(each.name), each.tensor, tensor);
      each.tensor.reset();
    }
    group.all_reduce_sum(as_integers(tensor));
    if (group.is_main()) gathered.push_back({whole.name, std::move(tensor)});
  }
  return gathered;
}

void CutState::load_local_parts(const OpenedSnapshot* snapshot,
                                const std::vector<NamedTensor>& held,
                                const std::function<bool(const std::string&)>& is_optional) {
  const torch::NoGradGuard no_grad;
  ProcessGroup& world = mesh_.world();
  const auto readers = world.gather_doubles(snapshot != nullptr ? 1.0 : 0.0);
  if (std::find(readers.begin(), readers.end(), 0.0) == readers.end()) {
    for (const auto& each : held) {
      if (snapshot->file->find(each.name) != nullptr || !is_optional(each.name))
        read_part(*snapshot, each.name, cut_of(each.name), each.tensor);
    }
    return;
  }
  const auto wholes = wholes_of(held, world, /*counted_only=*/false);
  std::vector<std::string> names;
  for (const Whole& whole : wholes) names.push_back(whole.name);
  const auto loadable = loadable_by_rank_zero(snapshot, names, is_optional, world);
  for (std::size_t i = 0; i < wholes.size(); ++i) {
    if (!loadable[i]) continue;
    const auto tensor = torch::empty(wholes[i].shape, wholes[i].type);
    if (world.is_main()) snapshot->load_into(wholes[i].name, tensor);
    world.broadcast({tensor});
    for (const auto& each : held) {
      if (each.name == wholes[i].name) take_part(cut_of(each.name), tensor, each.tensor);
    }
  }
}

}  // namespace ddp::train
