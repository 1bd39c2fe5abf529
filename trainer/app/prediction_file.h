// The file of `trainer predict --output`: a row per input, in the order of the inputs.
#pragma once

#include <string>
#include <vector>

#include "trainer/runtime/files/atomic_file.h"
#include "trainer/task/predictor.h"

namespace ddp::train {

/// The columns are input, label, probability, "probability of X" for each label, error, then those
/// of the inputs' table; of any number of labels, labels instead of label and probability, a JSON
/// list; of a regression value instead of all three; one whose name is taken is renamed to
/// "input.NAME". An input without an answer has its error and empty predictions. Tab-separated if
/// the name ends in .tsv, JSON objects, one per line, if in .jsonl or .ndjson, else comma-separated
/// (RFC 4180).
class PredictionFile {
 public:
  /// Throws UserError or RunError if the file cannot be created.
  PredictionFile(const std::string& path, const Predictor& predictor);

  void write(const Prediction& prediction);
  /// Publishes it under its name.
  void commit() { file_.commit(); }

 private:
  void write_row(const std::vector<TableCell>& cells);

  AtomicFile file_;
  const char separator_;  ///< 0: JSON lines.
  const ProblemType type_;
  std::vector<std::string> names_;
  std::size_t answers_ = 0;  ///< Columns between the input and the error.
};

}  // namespace ddp::train
