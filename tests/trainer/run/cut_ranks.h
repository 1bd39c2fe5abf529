// What the ranks of a mesh hold of known tensors, for tests of CutState.
#pragma once

#include <torch/torch.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/trainer/snapshot/snapshot_files.h"
#include "trainer/parallel/mesh/mesh.h"
#include "trainer/run/state/cut_state.h"

namespace ddp::train::test {

/// A tensor as a snapshot has it, and the cut of it that a rank at `place` holds; `held` false: it
/// is on another stage.
struct CutTensor {
  NamedTensor whole;
  ParameterCut cut;
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
    return CutRange{std::min(size, t * part), std::min(size, (t + 1) * part)};
  };
  const auto three = [&](int64_t each) {
    std::vector<CutRange> ranges;
    for (int64_t i = 0; i < 3; ++i) {
      const CutRange range = equal(each);
      ranges.push_back({i * each + range.begin, i * each + range.end});
    }
    return ranges;
  };
  const bool first = mesh.is_first_stage(), last = mesh.is_last_stage();
  const ParameterCut rows{{7, 3}, 0, {equal(7)}}, columns{{5, 8}, 1, {equal(8)}},
      parts_of_three{{12, 2}, 0, three(4)};
  return {{{"model.rows", marked({7, 3}, 0.3)}, rows, first},
          {{"model.columns", marked({5, 8}, 0.7)}, columns, first},
          {{"model.three", marked({12, 2}, 1.1)}, parts_of_three, last},
          {{"model.replica", marked({6}, 0.2)}, ParameterCut::whole({6}, t == 0), last},
          {{"optimizer.rows.exp_avg", marked({7, 3}, 0.4)}, rows, first},
          {{"optimizer.three.exp_avg", marked({12, 2}, 0.6)}, parts_of_three, last},
          {{"ema.replica", marked({6}, 0.9)}, ParameterCut::whole({6}, t == 0), last}};
}

/// This rank's part, made without CutState; a tensor whose rows do not divide has a row of padding.
inline torch::Tensor part_of(const CutTensor& each, int64_t parts) {
  std::vector<torch::Tensor> ranges;
  for (const CutRange& range : each.cut.ranges)
    ranges.push_back(each.whole.tensor.slice(each.cut.dim, range.begin, range.end));
  auto part = torch::cat(ranges, each.cut.dim);
  const int64_t padded = (each.cut.shape.front() + parts - 1) / parts;
  if (each.whole.name.find("rows") != std::string::npos && part.size(0) < padded)
    part = torch::cat({part, torch::zeros({padded - part.size(0), part.size(1)})});
  return part.contiguous();
}

inline bool same_bytes(const torch::Tensor& a, const torch::Tensor& b) {
  return a.sizes() == b.sizes() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

/// What went wrong on this rank, or "". `folder` is every rank's.
inline std::string wrong_in_cut_state(Mesh& mesh, const std::string& folder) {
  const auto all = cut_tensors(mesh);
  ParameterCuts cuts;
  std::vector<NamedTensor> held, empty;
  for (const auto& each : all) {
    if (!each.held) continue;
    cuts[parameter_of(each.whole.name)] = each.cut;
    held.push_back({each.whole.name, part_of(each, mesh.shape().tensor)});
    empty.push_back({each.whole.name, torch::full_like(held.back().tensor, 7.0)});
  }
  CutState state(cuts, mesh);
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
    state.load_local_parts(by_all || mesh.world().is_main() ? &snapshot : nullptr, empty,
                           [](const std::string&) { return false; });
    for (std::size_t i = 0; i < held.size(); ++i) {
      if (!same_bytes(empty[i].tensor, held[i].tensor))
        wrong += "dealt out another " + held[i].name + "; ";
    }
  }
  return wrong;
}

}  // namespace ddp::train::test
