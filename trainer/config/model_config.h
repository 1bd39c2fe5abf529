// gpt_config, bert_config and image_config: the networks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config/value_types.h"

namespace ddp::train {

enum class Activation { kGelu, kGeluTanh };
inline Names names_of(Activation) { return {"gelu", "gelu_tanh", "gelu_new=gelu_tanh"}; }

struct GptConfig {
  std::string model_type;  ///< Preset name, empty when the three sizes are given instead. Kept for
                           ///< messages.
  int64_t n_layer = 0;     ///< Resolved from model_type where that is given.
  int64_t n_head = 0;
  int64_t n_embd = 0;
  double embd_pdrop = 0.1;
  double resid_pdrop = 0.1;
  double attn_pdrop = 0.1;
  Activation activation = Activation::kGelu;
  bool tie_weights = false;  ///< lm_head shares its matrix with the token embedding.
  std::string init_from;     ///< Folder of a GPT-2 to start from. Absolute after loading.
  bool activation_checkpointing = false;
  AutoNumber loss_chunk_size;             ///< Rows of logits at a time in the loss; 0: all.
  AutoNumber pad_vocab_to_multiple_of{};  ///< In the logits of the loss; 0: none.
  bool fused_cpu_kernels = true;          ///< false: torch's operations.
};

/// The weights of the classes in a loss.
struct ClassWeights {
  bool balanced = false;       ///< All classes count equally, however many samples they have.
  std::vector<double> values;  ///< In the order of the labels; empty: all 1.
};

/// The networks that a BERT's code computes; see bert_family.h.
enum class BertFamily { kBert, kRoberta, kDistilbert };
inline Names names_of(BertFamily) { return {"bert", "roberta", "distilbert"}; }

/// What the labels of a text classifier are; named as in config.json of transformers.
enum class ProblemType { kSingleLabel, kMultiLabel, kRegression };
inline Names names_of(ProblemType) {
  return {"single_label_classification", "multi_label_classification", "regression"};
}

struct BertConfig {
  BertFamily family = BertFamily::kBert;
  std::string model_type;  ///< Preset name, empty when the sizes are given instead.
  int64_t n_layer = 0;     ///< Resolved from model_type or init_from where those are given.
  int64_t n_head = 0;
  int64_t n_embd = 0;
  int64_t intermediate = 0;     ///< Width within the feed-forward layers.
  int64_t type_vocab_size = 2;  ///< Rows of the table of token types; 0: there is none.
  int64_t position_offset = 0;  ///< Row of the table of positions for a text's first token.
  double layer_norm_eps = 1e-12;
  double hidden_pdrop = 0.1;
  double attn_pdrop = 0.1;
  std::string init_from;  ///< Folder or snapshot of a BERT to start from. Absolute after loading.
  ProblemType problem_type = ProblemType::kSingleLabel;  ///< For text_classification.
  ClassWeights class_weights;                            ///< Likewise.
};

enum class ImageNetworkKind { kDense, kConv };
inline Names names_of(ImageNetworkKind) { return {"dense", "conv"}; }

enum class BatchNormKind { kOff, kLocal, kSynchronized };
inline Names names_of(BatchNormKind) { return {"off", "local", "synchronized"}; }

struct ImageConfig {
  ImageNetworkKind network = ImageNetworkKind::kConv;
  int64_t n_layer = 2;         ///< Hidden layers of a dense network, stages of a convolutional one.
  int64_t width = 128;         ///< Units of a hidden layer.
  int64_t conv_channels = 32;  ///< In the first stage; doubled in each further one.
  BatchNormKind batch_norm = BatchNormKind::kOff;
  double dropout = 0.0;
  std::optional<int64_t> size;      ///< Pixels of a side that images are brought to.
  std::optional<int64_t> channels;  ///< 1 or 3; none: as the first image.
  double pixel_mean = 0.5;          ///< With pixels from 0 to 1.
  double pixel_std = 0.5;
  int64_t augment_shift = 0;  ///< Pixels, at most.
  bool augment_flip = false;
};

}  // namespace ddp::train
