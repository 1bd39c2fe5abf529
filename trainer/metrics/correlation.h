// How well answers that are numbers follow the true ones.
#pragma once

#include <span>

namespace ddp::train {

/// As scipy.stats.pearsonr; 0 where one side is constant, for which scipy has no number.
double pearson(std::span<const double> a, std::span<const double> b);
/// As scipy.stats.spearmanr: pearson() of the ranks; equal numbers share their mean rank.
double spearman(std::span<const double> a, std::span<const double> b);

}  // namespace ddp::train
