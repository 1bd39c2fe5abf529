// The interface of `trainer predict` to a task: inputs, and a trained model's predictions.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/config/model_config.h"
#include "trainer/data/text/table_file.h"

namespace ddp::train {

struct ModelBundle;

/// The answer to one input.
struct Prediction {
  std::string input;         ///< Its name or text.
  std::string place = {};    ///< For a text: file and line.
  std::string label;         ///< The most likely answer; empty if there is none.
  double probability = 0.0;  ///< Probability of the label.
  /// For multi_label_classification: the labels with a probability above 0.5.
  std::vector<std::string> labels = {};
  /// Answers and probabilities; of a regression the only number. For a classifier all of them in
  /// the order of labels(), else the most likely ones first.
  std::vector<std::pair<std::string, double>> answers;
  std::string problem;                ///< Why there is no answer, or "".
  std::vector<TableCell> cells = {};  ///< The table's row, one for each of columns().
};

class Predictor {
 public:
  virtual ~Predictor() = default;

  /// The classes, each of which every prediction has a probability of; empty: the answers differ
  /// from input to input.
  virtual const std::vector<std::string>& labels() const = 0;
  /// What the labels are.
  virtual ProblemType problem_type() const { return ProblemType::kSingleLabel; }
  /// The columns of the inputs' table; empty if they are not in a table.
  virtual std::vector<std::string> columns() const { return {}; }
  /// Predicts for the next inputs, at most `most` of them; empty at their end.
  virtual std::vector<Prediction> next(int64_t most) = 0;
};

struct PredictRequest {
  const ModelBundle& model;  ///< On the device to use; must outlive the predictor.
  torch::Device device = torch::kCPU;
  std::string input = {};      ///< File or folder.
  std::string text = {};       ///< Instead of input: one text.
  std::string text_pair = {};  ///< And the second text of a pair.
  /// Instead of both: returns one text after another, nullopt at the end.
  std::function<std::optional<std::string>()> next_line = {};
  int64_t most_answers = 5;  ///< For a task without classes.
};

/// Makes the predictor of the model's task. Throws UserError: a task without
/// predictions, or an input that cannot be opened.
std::unique_ptr<Predictor> make_predictor(const PredictRequest& request);

/// Sets the answers of `prediction`: float64 [classes] on the CPU, which add up to 1.
void answer_with(Prediction& prediction, const std::vector<std::string>& labels,
                 const torch::Tensor& probabilities);

/// One for each task that has predictions.
std::unique_ptr<Predictor> make_masked_predictor(const PredictRequest& request);
std::unique_ptr<Predictor> make_image_predictor(const PredictRequest& request);
std::unique_ptr<Predictor> make_text_predictor(const PredictRequest& request);

}  // namespace ddp::train
