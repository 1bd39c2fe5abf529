#include "trainer/run/state/distributed_state.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "trainer/model/blocks/tensor_parallel.h"
#include "trainer/optim/blockwise_adam.h"
#include "trainer/parallel/device/page_lock.h"
#include "trainer/run/state/row_moves.h"
#include "trainer/run/state/shared_snapshot.h"

namespace ddp::train {
namespace {

/// Zeros on the CPU, in memory of their own, which goes back to the system with the last tensor
/// that uses it: malloc would keep what is gathered once in a while.
torch::Tensor mapped_zeros(at::IntArrayRef sizes, torch::ScalarType type) {
  const auto bytes =
      static_cast<std::size_t>(c10::multiply_integers(sizes)) * c10::elementSize(type);
  auto memory = std::make_shared<MappedMemory>(bytes);
  return torch::from_blob(
      memory->data(), sizes, [memory](void*) {}, torch::TensorOptions(type));
}

/// The place of a tensor's section in the order of Trainer::state().
std::size_t section_of(std::string_view tensor) {
  constexpr std::array<std::string_view, 4> kSections = {"model.", "optimizer.", "buffer.", "ema."};
  const auto found =
      std::find_if(kSections.begin(), kSections.end(),
                   [&](std::string_view section) { return tensor.starts_with(section); });
  return static_cast<std::size_t>(found - kSections.begin());
}

/// Calls copy(own, logical) with views of the same elements.
template <class Copy>
void for_each_box(const TensorLayout& layout, const torch::Tensor& own,
                  const torch::Tensor& logical, const Copy& copy) {
  if (layout.is_whole() && own.sizes() == logical.sizes()) return copy(own, logical);
  const auto flat = own.view(-1);
  int64_t at = 0;
  for (const Box& box : layout.boxes) {
    copy(flat.narrow(0, at, box.elements()).view(box.sizes), in_box(logical, box));
    at += box.elements();
  }
}

void take_part(const TensorLayout& layout, const torch::Tensor& logical, const torch::Tensor& own) {
  if (layout.elements() < own.numel()) own.zero_();  // padding
  for_each_box(layout, own, logical,
               [](const torch::Tensor& to, const torch::Tensor& from) { to.copy_(from); });
}

void give_part(const TensorLayout& layout, const torch::Tensor& own, const torch::Tensor& logical) {
  for_each_box(layout, own, logical,
               [](const torch::Tensor& from, const torch::Tensor& to) { to.copy_(from); });
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

/// The first `elements` of `parts`, which lose them.
std::vector<torch::Tensor> take_elements(std::vector<torch::Tensor>& parts, int64_t elements) {
  std::vector<torch::Tensor> taken;
  while (elements > 0) {
    const auto first = parts.front().reshape(-1);
    const int64_t count = std::min(elements, first.numel());
    taken.push_back(first.narrow(0, 0, count));
    elements -= count;
    if (count == first.numel())
      parts.erase(parts.begin());
    else
      parts.front() = first.narrow(0, count, first.numel() - count);
  }
  return taken;
}

/// Whether it has a number for each block of a parameter, rather than for each element.
bool is_of_blocks(std::string_view tensor) {
  return tensor.starts_with("optimizer.") && tensor.ends_with(kAbsmax);
}

/// Who holds which elements of a parameter, or which of its blocks.
std::vector<ElementRange> held_of(const std::vector<std::vector<Shard>>& shards,
                                  std::size_t parameter, int64_t block) {
  std::vector<ElementRange> held;
  for (std::size_t rank = 0; rank < shards.size(); ++rank) {
    for (const Shard& shard : shards[rank]) {
      if (shard.parameter == parameter && shard.size() > 0)
        held.push_back(
            {static_cast<int>(rank), shard.begin / block, (shard.end + block - 1) / block});
    }
  }
  std::sort(held.begin(), held.end(),
            [](const ElementRange& a, const ElementRange& b) { return a.begin < b.begin; });
  return held;
}

std::map<std::string, std::vector<std::size_t>> by_name(const std::vector<NamedTensor>& held) {
  std::map<std::string, std::vector<std::size_t>> places;
  for (std::size_t i = 0; i < held.size(); ++i) places[held[i].name].push_back(i);
  return places;
}

}  // namespace

std::string parameter_of(const std::string& tensor) {
  const std::string name = tensor.substr(tensor.find('.') + 1);
  return tensor.starts_with("optimizer.") ? name.substr(0, name.rfind('.')) : name;
}

struct DistributedState::Entry {
  std::string name;
  torch::ScalarType type = torch::kFloat32;
  bool sharded = false;
  int64_t place = 0;
  std::vector<int64_t> shape;
};

TensorLayout DistributedState::layout_of(const NamedTensor& held) const {
  if (held.layout) return *held.layout;
  const auto found = layouts_.find(parameter_of(held.name));
  if (found != layouts_.end())
    return is_of_blocks(held.name) ? found->second.in_blocks(kStateBlock) : found->second;
  return TensorLayout::whole(held.tensor.sizes().vec(), mesh_.model().is_main());
}

// A rank knows what it holds itself only.
std::vector<DistributedState::Entry> DistributedState::entries_of_all(
    const std::vector<NamedTensor>& held, ProcessGroup& group) const {
  std::string own;
  std::set<std::string> listed;
  for (const auto& each : held) {
    const TensorLayout layout = layout_of(each);
    if (!layout.counted || (!each.layout && mesh_.place().data != 0) ||
        !listed.insert(each.name).second)
      continue;
    own += fmt::format("{} {} {:d} {} {} {}\n", each.name,
                       static_cast<int>(each.tensor.scalar_type()), each.layout.has_value(),
                       layout.place, layout.shape.size(), fmt::join(layout.shape, " "));
  }
  std::vector<Entry> all;
  std::set<std::string> seen;
  for (const auto& text : group.gather_texts(own)) {
    std::istringstream words(text);
    Entry entry;
    int type = 0;
    std::size_t dimensions = 0;
    while (words >> entry.name >> type >> entry.sharded >> entry.place >> dimensions) {
      entry.type = static_cast<torch::ScalarType>(type);
      entry.shape.resize(dimensions);
      for (int64_t& size : entry.shape) words >> size;
      if (seen.insert(entry.name).second) all.push_back(entry);
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const Entry& a, const Entry& b) {
    return std::pair(section_of(a.name), a.place) < std::pair(section_of(b.name), b.place);
  });
  return all;
}

std::vector<NamedTensor> DistributedState::gather(std::vector<NamedTensor> held) const {
  if (!is_divided()) return held;
  if (shards_ == nullptr && mesh_.place().data != 0) return {};
  const torch::NoGradGuard no_grad;
  ProcessGroup& group = shards_ != nullptr ? mesh_.world() : mesh_.model();
  const auto places = by_name(held);
  std::vector<NamedTensor> gathered;
  for (const Entry& entry : entries_of_all(held, group)) {
    const auto own = places.find(entry.name);
    if (layouts_.empty() && !entry.sharded) {  // every rank has all of it
      if (group.is_main()) gathered.push_back({entry.name, held[own->second.front()].tensor});
      continue;
    }
    auto tensor = mapped_zeros(entry.shape, entry.type);
    for (const std::size_t i : own == places.end() ? std::vector<std::size_t>{} : own->second) {
      const TensorLayout layout = layout_of(held[i]);
      if (layout.counted && (held[i].layout || mesh_.place().data == 0))
        give_part(layout, held[i].tensor, tensor);
      held[i].tensor.reset();
    }
    group.all_reduce_sum(as_integers(tensor));
    if (!group.is_main()) continue;
    gathered.push_back({entry.name, std::move(tensor)});
  }
  return gathered;
}

bool DistributedState::load(const OpenedSnapshot* snapshot, const std::vector<NamedTensor>& held,
                            const IsOptional& is_optional) const {
  const auto readers = mesh_.world().gather_doubles(snapshot != nullptr ? 1.0 : 0.0);
  if (std::find(readers.begin(), readers.end(), 0.0) != readers.end()) {
    load_from_rank_zero(snapshot, held, is_optional);
    return false;
  }
  for (const auto& each : held) {
    if (snapshot->file->find(each.name) != nullptr || !is_optional(each.name))
      snapshot->load_into(each.name, layout_of(each), each.tensor);
  }
  return true;
}

void DistributedState::load_from_rank_zero(const OpenedSnapshot* snapshot,
                                           const std::vector<NamedTensor>& held,
                                           const IsOptional& is_optional) const {
  const torch::NoGradGuard no_grad;
  ProcessGroup& world = mesh_.world();
  const auto entries = entries_of_all(held, world);
  std::vector<std::string> names;
  for (const Entry& entry : entries) names.push_back(entry.name);
  const auto loadable = loadable_by_rank_zero(snapshot, names, is_optional, world);
  const auto places = by_name(held);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (!loadable[i]) continue;
    const auto tensor =
        torch::empty(entries[i].shape, torch::TensorOptions(entries[i].type).device(device_));
    if (world.is_main()) snapshot->load_into(names[i], tensor);
    world.broadcast({tensor});
    const auto own = places.find(names[i]);
    if (own == places.end()) continue;
    for (const std::size_t k : own->second) take_part(layout_of(held[k]), tensor, held[k].tensor);
  }
}

std::vector<NamedTensor> DistributedState::counted(const std::vector<NamedTensor>& held,
                                                   bool sharded) const {
  std::vector<NamedTensor> result;
  for (const auto& each : held) {
    if (each.layout.has_value() == sharded && layout_of(each).counted) result.push_back(each);
  }
  return result;
}

std::vector<StatePiece> DistributedState::own_pieces(const std::vector<NamedTensor>& held,
                                                     std::vector<LogicalTensor>& tensors) {
  if (saved_.empty()) {
    for (const Entry& entry : entries_of_all(held, mesh_.world())) {
      saved_.push_back({entry.name, dtype_name(entry.type), entry.shape});
      if (entry.sharded) sharded_.insert(entry.name);
    }
  }
  tensors = saved_;
  auto pieces = own_share(counted(held, false), mesh_.copies().rank(), mesh_.copies().size());
  auto of_shards = pieces_of_shards(counted(held, true));
  std::move(of_shards.begin(), of_shards.end(), std::back_inserter(pieces));
  return logical_pieces(std::move(pieces));
}

/// In boxes of the tensor that the ranks of ZeRO divide.
std::vector<StatePiece> DistributedState::pieces_of_shards(
    const std::vector<NamedTensor>& held) const {
  if (shards_ == nullptr) return {};
  const auto& parameters = shards_->parameters();
  std::map<std::string, std::size_t> numbers;
  for (std::size_t i = 0; i < parameters.size(); ++i) numbers[parameters[i].name] = i;
  const auto shards = shards_->shards_of_ranks();
  const auto places = by_name(held);
  std::vector<DividedTensor> divided;
  for (const LogicalTensor& tensor : saved_) {
    const std::string parameter = parameter_of(tensor.name);
    const auto number = numbers.find(parameter);
    if (!sharded_.contains(tensor.name) || number == numbers.end()) continue;
    const auto layout = layouts_.find(parameter);
    if (layout != layouts_.end() && !layout->second.counted) continue;
    const bool blocks = is_of_blocks(tensor.name);
    const auto shape = blocks ? tensor.shape : parameters[number->second].tensor.sizes().vec();
    DividedTensor each{
        tensor.name, shape, held_of(shards, number->second, blocks ? kStateBlock : 1), {}, {}};
    if (tensor.dtype == dtype_name(torch::kUInt8)) each.type = torch::kUInt8;
    each.saved = rows_to_save(each.held, row_elements(shape), mesh_.data().size());
    if (const auto own = places.find(tensor.name); own != places.end()) {
      for (const std::size_t i : own->second) {
        if (held[i].tensor.numel() > 0)
          each.own.emplace_back(held[i].layout->first, held[i].tensor);
      }
    }
    divided.push_back(std::move(each));
  }
  return pieces_by_rows(divided, shards_->rows(), device_, mesh_.data().rank(),
                        mesh_.data().size());
}

/// Boxes of what a rank of the model holds as boxes of the logical tensors.
std::vector<StatePiece> DistributedState::logical_pieces(std::vector<StatePiece> pieces) const {
  std::vector<StatePiece> result;
  for (StatePiece& piece : pieces) {
    const auto found = layouts_.find(parameter_of(piece.name));
    if (found == layouts_.end() || found->second.is_whole()) {
      result.push_back(std::move(piece));
      continue;
    }
    const int64_t row = row_elements(piece.shape);
    const int64_t begin = piece.box.offsets.front() * row;
    int number = 0;
    for (const Box& box : found->second.slice(begin, begin + piece.box.elements()).boxes) {
      result.push_back({piece.name, found->second.shape, box,
                        take_elements(piece.parts, box.elements()), number++});
    }
  }
  return result;
}

}  // namespace ddp::train
