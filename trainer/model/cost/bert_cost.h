// Estimates the cost of training a BERT arithmetically: parameters, memory, floating-point
// operations. Does not use LibTorch.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "trainer/config/model_config.h"
#include "trainer/model/cost/training_cost.h"

namespace ddp::train {

struct Config;

struct BertSizes {
  int64_t vocab_size = 0;
  int64_t positions = 0;      ///< The model's.
  int64_t classes = 0;        ///< 0: a masked language model.
  double hidden_share = 0.0;  ///< Share of a row's tokens; for a masked language model.
  int64_t longest_row = 0;    ///< Tokens; a batch is as wide as its longest one.
  double mean_row = 0.0;
};

std::vector<ParameterPart> bert_parameter_parts(const BertConfig& bert, const BertSizes& sizes);

ParameterRole bert_role(std::string_view name, int64_t dimensions);
/// In the order of the model's model_parameters().
std::vector<ParameterShape> bert_parameter_shapes(const BertConfig& bert, const BertSizes& sizes);

/// Forward and backward pass of a row of mean length, its padding not counted: 6 for each weight
/// and token, 12 L C T for attention as in flops_per_token().
double bert_flops(const BertConfig& bert, const BertSizes& sizes);

/// At the step whose batch has the longest row. As memory_items().
std::vector<MemoryItem> bert_memory_items(const Config& config, const BertSizes& sizes,
                                          const ComputePlace& place);

}  // namespace ddp::train
