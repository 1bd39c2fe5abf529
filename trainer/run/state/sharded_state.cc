#include "trainer/run/state/sharded_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "trainer/parallel/strategy/zero.h"
#include "trainer/run/state/mapped_tensor.h"
#include "trainer/run/state/row_cut.h"
#include "trainer/run/state/shared_snapshot.h"

namespace ddp::train {
namespace {

constexpr const char* kHole = "{}";

/// Who holds which elements of a parameter.
std::vector<HeldRange> held_of(const std::vector<std::vector<Shard>>& shards,
                               std::size_t parameter) {
  std::vector<HeldRange> held;
  for (std::size_t rank = 0; rank < shards.size(); ++rank) {
    for (const Shard& shard : shards[rank]) {
      if (shard.parameter == parameter && shard.size() > 0)
        held.push_back({static_cast<int>(rank), shard.begin, shard.end});
    }
  }
  std::sort(held.begin(), held.end(),
            [](const HeldRange& a, const HeldRange& b) { return a.begin < b.begin; });
  return held;
}

}  // namespace

// Muon orthogonalises whole matrices.
std::set<std::string> whole_matrices(const TrainedParameters& trained) {
  std::set<std::string> matrices;
  for (const auto& group : trained.groups) {
    if (group.options.optimizer != OptimizerName::kMuon) continue;
    for (const std::size_t i : group.members) matrices.insert(trained.parameters[i].name);
  }
  return matrices;
}

std::unique_ptr<ZeroDataParallel> make_shards(const TrainedParameters& trained, ProcessGroup& group,
                                              const DistributedConfig& config, int averaged_over,
                                              FirstValues values) {
  if (!divides_state(config.strategy) || group.size() == 1) return nullptr;
  const auto matrices = whole_matrices(trained);
  std::vector<ShardedDataParallel::Parameter> parameters;
  for (const auto& p : trained.parameters)
    parameters.push_back({p.name, p.tensor, matrices.contains(p.name)});
  const ZeroDataParallel::Options options{config.strategy == Strategy::kZero2, averaged_over,
                                          config.bucket_cap_mb};
  return std::make_unique<ZeroDataParallel>(std::move(parameters), group, options, values);
}

TrainedParameters pieces_of(const TrainedParameters& trained, const ShardedDataParallel& shards) {
  TrainedParameters pieces;
  std::map<std::string, const Parameter*> by_name;
  for (const Parameter& p : trained.parameters) by_name.emplace(p.name, &p);
  std::map<std::string, std::vector<std::size_t>> of_parameter;
  for (const OwnShard& own : shards.own()) {
    if (!own.gradient.defined()) continue;  // frozen
    const Parameter& whole = *by_name.at(shards.parameters()[own.shard.parameter].name);
    of_parameter[whole.name].push_back(pieces.parameters.size());
    torch::Tensor value = own.value;
    value.mutable_grad() = own.gradient;
    pieces.parameters.push_back(
        {whole.name, value, whole.role,
         Piece{own.shard.parameter, whole.tensor.sizes().vec(), own.shard.begin}});
  }
  for (const auto& group : trained.groups) {
    ParameterGroup own = group;
    own.members.clear();
    for (const std::size_t i : group.members) {
      const auto& members = of_parameter[trained.parameters[i].name];
      own.members.insert(own.members.end(), members.begin(), members.end());
    }
    if (!own.members.empty()) pieces.groups.push_back(std::move(own));
  }
  return pieces;
}

ShardedState::Whole ShardedState::whole_of(const NamedTensor& piece) const {
  const std::string& parameter = shards_.parameters()[piece.piece->parameter].name;
  std::string label = piece.name;
  return {piece.piece->parameter, label.replace(label.find(parameter), parameter.size(), kHole)};
}

std::string ShardedState::name_of(const Whole& whole) const {
  std::string name = whole.label;
  return name.replace(name.find(kHole), 2, shards_.parameters()[whole.parameter].name);
}

std::size_t ShardedState::place_of(const Piece& piece) const {
  const auto& own = shards_.own();
  const auto found = std::find_if(own.begin(), own.end(), [&](const OwnShard& each) {
    return each.shard.parameter == piece.parameter && each.shard.begin == piece.begin;
  });
  return static_cast<std::size_t>(found - own.begin());
}

// A rank knows what is kept of its own shards only.
std::vector<ShardedState::Whole> ShardedState::wholes_of(const std::vector<NamedTensor>& pieces) {
  std::string own;
  for (const auto& piece : pieces) {
    const Whole whole = whole_of(piece);
    if (piece.tensor.numel() > 0) own += fmt::format("{} {}\n", whole.label, whole.parameter);
  }
  std::set<Whole> all;
  for (const auto& text : group_.gather_texts(own)) {
    std::istringstream lines(text);
    Whole whole;
    while (lines >> whole.label >> whole.parameter) all.insert(whole);
  }
  return {all.begin(), all.end()};
}

std::vector<NamedTensor> ShardedState::gather(const std::vector<NamedTensor>& pieces) {
  std::map<Whole, torch::Tensor> gathered;
  std::set<std::string> labels;
  for (const Whole& whole : wholes_of(pieces)) {
    const auto& like = shards_.parameters()[whole.parameter].tensor;
    labels.insert(whole.label);
    if (group_.is_main())
      gathered[whole] = mapped_zeros(like.sizes(), like.strides(), torch::kFloat32);
  }
  for (const std::string& label : labels) {
    shards_.exchange(values_of(label, pieces),
                     [&](int, const Shard& shard, const torch::Tensor& value) {
                       const auto found = gathered.find({shard.parameter, label});
                       if (found != gathered.end())
                         shards_.part_of(found->second, shard).copy_(value);
                     });
  }
  std::vector<NamedTensor> tensors;
  for (const auto& [whole, tensor] : gathered) tensors.push_back({name_of(whole), tensor});
  return tensors;
}

std::vector<StatePiece> ShardedState::own_pieces(const std::vector<NamedTensor>& pieces,
                                                 std::vector<LogicalTensor>& tensors) {
  const auto shards = shards_.shards_of_ranks();
  std::vector<RowCut> cuts;
  if (!saved_) saved_ = wholes_of(pieces);
  for (const Whole& whole : *saved_) {
    const auto shape = shards_.parameters()[whole.parameter].tensor.sizes().vec();
    tensors.push_back({name_of(whole), dtype_name(torch::kFloat32), shape});
    RowCut cut{name_of(whole), shape, held_of(shards, whole.parameter), {}, {}};
    cut.saved = rows_to_save(cut.held, row_elements(shape), group_.size());
    for (const auto& piece : pieces) {
      if (piece.tensor.numel() > 0 && whole_of(piece) == whole)
        cut.own.emplace_back(piece.piece->begin, piece.tensor);
    }
    cuts.push_back(std::move(cut));
  }
  const auto device = shards_.parameters().front().tensor.device();
  return pieces_by_rows(cuts, shards_.rows(), device, group_.rank(), group_.size());
}

std::vector<torch::Tensor> ShardedState::values_of(const std::string& label,
                                                   const std::vector<NamedTensor>& pieces) const {
  std::vector<torch::Tensor> values(shards_.own().size());
  for (const auto& piece : pieces) {
    if (piece.tensor.numel() > 0 && whole_of(piece).label == label)
      values[place_of(*piece.piece)] = piece.tensor;
  }
  return values;
}

void ShardedState::load_local_parts(const OpenedSnapshot* snapshot,
                                    const std::vector<NamedTensor>& pieces,
                                    const std::function<bool(const std::string&)>& is_optional) {
  const auto wholes = wholes_of(pieces);
  std::vector<std::string> names;
  for (const Whole& whole : wholes) names.push_back(name_of(whole));
  const auto loadable = loadable_by_rank_zero(snapshot, names, is_optional, group_);
  for (std::size_t i = 0; i < wholes.size(); ++i) {
    if (!loadable[i]) continue;
    const auto& like = shards_.parameters()[wholes[i].parameter].tensor;
    const auto tensor = torch::empty(like.sizes(), like.options().requires_grad(false));
    if (group_.is_main()) snapshot->load_into(names[i], tensor);
    group_.broadcast({tensor});
    for (const auto& piece : pieces) {
      if (piece.tensor.numel() == 0 || whole_of(piece) != wholes[i]) continue;
      const auto& own = shards_.own()[place_of(*piece.piece)];
      const bool all = piece.tensor.sizes() == tensor.sizes();
      piece.tensor.copy_(all ? tensor
                             : tensor.view(-1).narrow(0, own.shard.begin, own.shard.size()));
    }
  }
}

}  // namespace ddp::train
