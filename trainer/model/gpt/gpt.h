// GPT: minGPT's decoder-only transformer (pre-norm, learned positions), causal.
//
// After A. Karpathy's minGPT (model.py) and Radford et al., "Language models are unsupervised
// multitask learners" (2019). Parameter names are those of Hugging Face's GPT2LMHeadModel; weights
// of linear layers are [out, in].
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "trainer/config/model_config.h"
#include "trainer/model/decoder_model.h"

namespace ddp::train {

struct Config;

class GPTImpl : public DecoderModel {
 public:
  /// Weights drawn from `seed`; see DecoderModel::complete(). `ranks`: they share its layers; the
  /// weights are parts of those of one process.
  GPTImpl(const GptConfig& config, int64_t vocab_size, int64_t block_size,
          std::optional<uint64_t> seed, const TensorRanksPtr& ranks = {});

 protected:
  torch::Tensor embed(const torch::Tensor& idx_BT, const TokenContext& context,
                      const BlockPass& pass) override;
  void keep(const ModelPart& part) override;

 private:
  torch::nn::Embedding wpe{nullptr};
  double embd_pdrop_;
};
TORCH_MODULE(GPT);

/// See MakeCausalModel.
std::shared_ptr<CausalModel> make_gpt(const Config& config, int64_t vocab_size,
                                      std::optional<uint64_t> seed, const TensorRanksPtr& ranks);

}  // namespace ddp::train
