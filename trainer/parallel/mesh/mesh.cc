#include "trainer/parallel/mesh/mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <vector>

namespace ddp::train {
namespace {

/// Joins groups of some of the world's ranks.
class GroupMaker {
 public:
  GroupMaker(ProcessGroup& world, const DistEnv& env, const DistributedConfig& config,
             const DevicePlan& plan)
      : world_(world), env_(env), config_(config), plan_(plan) {}

  /// `ranks`: of the world, ascending; this one is among them. `name`: of the kind of group.
  std::shared_ptr<ProcessGroup> join(const std::string& name, const std::vector<int>& ranks) {
    if (ranks.size() == static_cast<std::size_t>(world_.size()))
      return {&world_, [](ProcessGroup*) {}};
    if (ranks.size() == 1) return std::make_shared<ProcessGroup>();
    for (const auto& [members, group] : made_) {
      if (members == ranks) return group;
    }
    const StorePart part{c10::make_intrusive<c10d::PrefixStore>(
        fmt::format("{}/{}/", name, ranks.front()), world_.c10d()->getStore())};
    auto group = std::make_shared<ProcessGroup>(env_of(ranks), config_, plan_, part);
    world_.add_part(group);
    made_.emplace_back(ranks, group);
    return group;
  }

 private:
  DistEnv env_of(const std::vector<int>& ranks) const {
    DistEnv env = env_;
    const auto own = std::find(ranks.begin(), ranks.end(), env_.rank);
    env.rank = static_cast<int>(own - ranks.begin());
    env.world_size = static_cast<int>(ranks.size());
    const auto here = [this](int rank) { return machine_of(rank) == machine_of(env_.rank); };
    env.local_world_size = static_cast<int>(std::count_if(ranks.begin(), ranks.end(), here));
    env.local_rank = static_cast<int>(std::count_if(ranks.begin(), own, here));
    return env;
  }
  /// As launchers number ranks: those of a machine follow each other.
  int machine_of(int rank) const {
    const int first_here = env_.rank - env_.local_rank;
    if (rank < first_here) return -1;
    return rank < first_here + env_.local_world_size ? 0 : 1;
  }

  ProcessGroup& world_;
  const DistEnv& env_;
  const DistributedConfig& config_;
  const DevicePlan& plan_;
  std::vector<std::pair<std::vector<int>, std::shared_ptr<ProcessGroup>>> made_;
};

/// The ranks whose places `belongs` accepts.
template <class Belongs>
std::vector<int> ranks_where(const MeshShape& shape, const Belongs& belongs) {
  std::vector<int> ranks;
  for (int rank = 0; rank < shape.size(); ++rank) {
    if (belongs(MeshPlace::of_rank(rank, shape))) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace

MeshPlace MeshPlace::of_rank(int rank, const MeshShape& shape) {
  const int model = rank / shape.expert % (shape.pipeline * shape.tensor);
  return {rank / shape.model_size(), model / shape.tensor, model % shape.tensor,
          rank % shape.expert};
}

int MeshPlace::rank_in(const MeshShape& shape) const {
  return ((data * shape.pipeline + stage) * shape.tensor + tensor) * shape.expert + expert;
}

Mesh::Mesh(ProcessGroup& world)
    : world_(world),
      shape_{world.size(), 1, 1},
      place_{world.rank(), 0, 0},
      data_(&world, [](ProcessGroup*) {}),
      pipeline_(std::make_shared<ProcessGroup>()),
      tensor_(pipeline_),
      model_(pipeline_),
      copies_(data_) {}

Mesh::Mesh(ProcessGroup& world, const MeshShape& shape, const DistEnv& env,
           const DistributedConfig& config, const DevicePlan& plan)
    : world_(world), shape_(shape), place_(MeshPlace::of_rank(world.rank(), shape)) {
  TORCH_CHECK(shape.size() == world.size(), "a mesh of ", shape.size(), " ranks, but there are ",
              world.size());
  GroupMaker groups(world, env, config, plan);
  const MeshPlace here = place_;
  model_ = groups.join(
      "model", ranks_where(shape, [&](const MeshPlace& each) { return each.data == here.data; }));
  tensor_ = groups.join("tensor", ranks_where(shape, [&](const MeshPlace& each) {
                          return each.data == here.data && each.stage == here.stage &&
                                 each.expert == here.expert;
                        }));
  pipeline_ = groups.join("pipeline", ranks_where(shape, [&](const MeshPlace& each) {
                            return each.data == here.data && each.tensor == here.tensor &&
                                   each.expert == here.expert;
                          }));
  data_ = groups.join("data", ranks_where(shape, [&](const MeshPlace& each) {
                        return each.stage == here.stage && each.tensor == here.tensor;
                      }));
  copies_ = groups.join("copies", ranks_where(shape, [&](const MeshPlace& each) {
                          return each.stage == here.stage && each.tensor == here.tensor &&
                                 each.expert == here.expert;
                        }));
}

}  // namespace ddp::train
