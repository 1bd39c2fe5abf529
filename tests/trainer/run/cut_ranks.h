// What the ranks of a mesh hold of known tensors, for tests of DistributedState.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/trainer/snapshot/snapshot_files.h"
#include "trainer/parallel/mesh/mesh.h"
#include "trainer/run/state/distributed_state.h"
#include "trainer/snapshot/training_state.h"

namespace ddp::train::test {

/// A tensor as a snapshot has it, and the cut of it that a rank at `place` holds; `held` false: it
/// is on another stage.
struct CutTensor {
  NamedTensor whole;
  TensorLayout layout;
  bool held = true;
};

/// With numbers whose bits a sum would change.
inline torch::Tensor marked(std::vector<int64_t> shape, double factor) {
  auto tensor =
      (torch::arange(1, 1 + c10::multiply_integers(shape), torch::kFloat32) * factor).sin();
  tensor[0] = -0.0F;
  tensor[1] = std::numeric_limits<float>::quiet_NaN();
  return tensor.view(shape);
}

/// Rows in equal ranges, the last one shorter; columns; three ranges of rows; replicas; parameters
/// of the first and of the last stage; the optimizer's state.
inline std::vector<CutTensor> cut_tensors(const Mesh& mesh) {
  const int64_t t = mesh.place().tensor, parts = mesh.shape().tensor;
  const auto equal = [&](int64_t size) {
    const int64_t part = (size + parts - 1) / parts;
    return IndexRange{std::min(size, t * part), std::min(size, (t + 1) * part)};
  };
  const auto three = [&](int64_t each) {
    std::vector<IndexRange> ranges;
    for (int64_t i = 0; i < 3; ++i) {
      const IndexRange range = equal(each);
      ranges.push_back({i * each + range.begin, i * each + range.end});
    }
    return ranges;
  };
  const bool first = mesh.is_first_stage(), last = mesh.is_last_stage();
  const auto rows = TensorLayout::cut({7, 3}, 0, {equal(7)});
  const auto columns = TensorLayout::cut({5, 8}, 1, {equal(8)});
  const auto parts_of_three = TensorLayout::cut({12, 2}, 0, three(4));
  return {{{"model.rows", marked({7, 3}, 0.3)}, rows, first},
          {{"model.columns", marked({5, 8}, 0.7)}, columns, first},
          {{"model.three", marked({12, 2}, 1.1)}, parts_of_three, last},
          {{"model.replica", marked({6}, 0.2)}, TensorLayout::whole({6}, t == 0), last},
          {{"optimizer.rows.exp_avg", marked({7, 3}, 0.4)}, rows, first},
          {{"optimizer.three.exp_avg", marked({12, 2}, 0.6)}, parts_of_three, last},
          {{"ema.replica", marked({6}, 0.9)}, TensorLayout::whole({6}, t == 0), last}};
}

/// This rank's part, made without DistributedState; a tensor whose rows do not divide has a row of
/// padding.
inline torch::Tensor part_of(const CutTensor& each, int64_t parts) {
  std::vector<torch::Tensor> boxes;
  for (const Box& box : each.layout.boxes) {
    auto inside = each.whole.tensor.slice(0, box.offsets[0], box.offsets[0] + box.sizes[0]);
    if (box.sizes.size() > 1)
      inside = inside.slice(1, box.offsets[1], box.offsets[1] + box.sizes[1]);
    boxes.push_back(inside);
  }
  auto part = torch::cat(boxes);
  const int64_t padded = (each.layout.shape.front() + parts - 1) / parts;
  if (each.whole.name.find("rows") != std::string::npos && part.size(0) < padded)
    part = torch::cat({part, torch::zeros({padded - part.size(0), part.size(1)})});
  return part.contiguous();
}

inline bool same_bytes(const torch::Tensor& a, const torch::Tensor& b) {
  return a.sizes() == b.sizes() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

/// Every rank writes its boxes to a file of its own. Returns the paths of all.
inline std::vector<std::string> save_boxes(DistributedState& state, ProcessGroup& world,
                                           const std::vector<NamedTensor>& held,
                                           const std::string& folder) {
  ShardToSave shard;
  shard.id = {"0123456789abcdef", 1, 1, world.rank(), world.size()};
  shard.pieces = state.own_pieces(held, shard.tensors);
  const auto parts = parts_of(shard.pieces);
  StateBuffer buffer(parts);
  buffer.begin_copy(parts, nullptr);
  Metadata metadata = sample_meta(1).to_metadata();
  metadata.merge(shard_metadata(shard.id, shard.pieces));
  metadata[kTensorsKey] = tensors_json(shard.tensors);
  std::vector<std::string> files;
  for (int i = 0; i < world.size(); ++i)
    files.push_back(folder + "/" + shard_name("boxes.step-1", i, world.size()));
  publish_safetensors(files[static_cast<std::size_t>(world.rank())], "", metadata,
                      bytes_of_pieces(shard.pieces, buffer.tensors()));
  world.barrier();
  return files;
}

/// The same for a save in which each rank writes its boxes to a file of its own.
inline std::string wrong_in_boxes(DistributedState& state, Mesh& mesh,
                                  const std::vector<NamedTensor>& held,
                                  const std::vector<CutTensor>& all, const std::string& folder) {
  std::string wrong;
  const OpenedSnapshot snapshot = peek_shards(save_boxes(state, mesh.world(), held, folder));
  if (snapshot.file->tensors().size() != all.size()) wrong += "another number of tensors; ";
  for (const auto& each : all) {
    const auto loaded = torch::empty_like(each.whole.tensor);
    snapshot.load_into(each.whole.name, loaded);
    if (!same_bytes(loaded, each.whole.tensor)) wrong += "saved another " + each.whole.name + "; ";
  }
  return wrong;
}

/// What went wrong on this rank, or "". `folder` is every rank's.
inline std::string wrong_in_cut_state(Mesh& mesh, const std::string& folder) {
  const auto all = cut_tensors(mesh);
  TensorLayouts layouts;
  std::vector<NamedTensor> held, empty;
  for (const auto& each : all) {
    if (!each.held) continue;
    layouts[parameter_of(each.whole.name)] = each.layout;
    held.push_back({each.whole.name, part_of(each, mesh.shape().tensor)});
    empty.push_back({each.whole.name, torch::full_like(held.back().tensor, 7.0)});
  }
  DistributedState state(layouts, mesh, nullptr, torch::kCPU);
  const auto gathered = state.gather(held);
  std::string wrong;
  if (gathered.size() != (mesh.world().is_main() ? all.size() : 0)) wrong += "another number; ";
  const std::string path = folder + "/cut.pt";
  if (mesh.world().is_main()) {
    NamedTensors tensors;
    for (const auto& each : gathered) {
      for (const auto& known : all) {
        if (known.whole.name == each.name && !same_bytes(each.tensor, known.whole.tensor))
          wrong += "gathered another " + each.name + "; ";
      }
      tensors.emplace_back(each.name, each.tensor);
    }
    save_snapshot(path, sample_meta(1), tensors);
  }
  mesh.world().barrier();
  const OpenedSnapshot snapshot = open_snapshot(path);
  for (const bool by_all : {true, false}) {
    for (auto& each : empty) each.tensor.fill_(7.0);
    state.load(by_all || mesh.world().is_main() ? &snapshot : nullptr, empty,
               [](const std::string&) { return false; });
    for (std::size_t i = 0; i < held.size(); ++i) {
      if (!same_bytes(empty[i].tensor, held[i].tensor))
        wrong += "dealt out another " + held[i].name + "; ";
    }
  }
  return wrong + wrong_in_boxes(state, mesh, held, all, folder);
}

}  // namespace ddp::train::test
