// trainer predict: what a trained model makes of a text, or of the inputs in a file or folder.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "launcher/worker_contract.h"
#include "trainer/app/chosen_device.h"
#include "trainer/app/modes.h"
#include "trainer/app/standard_output.h"
#include "trainer/metrics/text.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/atomic_file.h"
#include "trainer/snapshot/open_model.h"
#include "trainer/task/predict/predictor.h"

namespace ddp::train {
namespace {

/// Texts come one by one from standard input when no other is named.
bool from_standard_input(const PredictArgs& options) {
  return options.text.empty() && options.input.empty();
}

std::optional<std::string> line_of_standard_input() {
  if (::isatty(STDIN_FILENO) == 1) fmt::print(stderr, "text> ");
  std::string line;
  if (!std::getline(std::cin, line)) return std::nullopt;
  if (line.ends_with('\r')) line.pop_back();
  return line;
}

PredictRequest request_of(const ModelBundle& model, torch::Device device,
                          const PredictArgs& options) {
  PredictRequest request{model, device};
  request.text = options.text;
  request.text_pair = options.text_pair;
  request.input = options.input;
  if (from_standard_input(options)) request.next_line = line_of_standard_input;
  request.most_answers = options.top;
  return request;
}

/// How messages call an input without an answer.
const std::string& place_of(const Prediction& prediction) {
  return prediction.place.empty() ? prediction.input : prediction.place;
}

nlohmann::ordered_json prediction_json(const Prediction& prediction, ProblemType type) {
  if (!prediction.problem.empty())
    return {{"input", place_of(prediction)}, {"problem", prediction.problem}};
  if (type == ProblemType::kRegression)
    return {{"input", prediction.input}, {"value", prediction.answers.front().second}};
  auto answers = nlohmann::ordered_json::array();
  for (const auto& [answer, probability] : prediction.answers)
    answers.push_back({{"answer", answer}, {"probability", probability}});
  if (type == ProblemType::kMultiLabel)
    return {{"input", prediction.input},
            {"labels", prediction.labels},
            {"answers", std::move(answers)}};
  return {{"input", prediction.input},
          {"label", prediction.label},
          {"probability", prediction.probability},
          {"answers", std::move(answers)}};
}

/// The `top` most likely answers, or of a classifier the most likely one alone.
std::string prediction_table(const Prediction& prediction, bool classes, ProblemType type) {
  if (type == ProblemType::kRegression)
    return fmt::format("{}  {:.4f}\n", prediction.input, prediction.answers.front().second);
  if (type == ProblemType::kMultiLabel)
    return fmt::format("{}  {}\n", prediction.input,
                       prediction.labels.empty()
                           ? "no label"
                           : fmt::format("{}", fmt::join(prediction.labels, ", ")));
  if (classes && prediction.problem.empty())
    return fmt::format("{}  {}  {:.4f}\n", prediction.input, prediction.label,
                       prediction.probability);
  std::string text = prediction.input + "\n";
  for (const auto& [answer, probability] : prediction.answers)
    text += fmt::format("  {:<20} {:.4f}\n", answer, probability);
  return text;
}

// The file of --output: a row per input, in the order of the inputs.

char separator_of(const std::string& path) {
  if (path.ends_with(".jsonl") || path.ends_with(".ndjson")) return 0;
  return path.ends_with(".tsv") ? '\t' : ',';
}

/// RFC 4180: quotes where the field has a separator, a quote or a line end.
std::string quoted_field(const std::string& text, char separator) {
  if (text.find_first_of(std::string("\"\r\n") + separator) == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

const TableCell& no_value() {
  static const TableCell null{"null", /*is_json=*/true};
  return null;
}

TableCell number(double value) {
  return std::isfinite(value) ? TableCell{fmt::to_string(value), /*is_json=*/true} : no_value();
}

std::string separated_row(const std::vector<TableCell>& cells, char separator) {
  std::string row;
  for (const TableCell& cell : cells) {
    const bool empty = cell.is_json && cell.text == "null";
    row += (empty ? "" : quoted_field(cell.text, separator)) + separator;
  }
  row.back() = '\n';
  return row;
}

std::string json_row(const std::vector<std::string>& names, const std::vector<TableCell>& cells) {
  nlohmann::ordered_json row;
  for (std::size_t i = 0; i < names.size(); ++i) {
    row[names[i]] = cells[i].is_json ? nlohmann::ordered_json::parse(cells[i].text)
                                     : nlohmann::ordered_json(cells[i].text);
  }
  return json_output(row);
}

/// The input's, and those of its answers.
std::vector<std::string> answer_columns(const Predictor& predictor) {
  std::vector<std::string> names = {"input"};
  if (predictor.problem_type() == ProblemType::kRegression) {
    names.emplace_back("value");
    return names;
  }
  const bool several = predictor.problem_type() == ProblemType::kMultiLabel;
  names.emplace_back(several ? "labels" : "label");
  if (!several) names.emplace_back("probability");
  for (const std::string& label : predictor.labels()) names.push_back("probability of " + label);
  return names;
}

void append_answers(std::vector<TableCell>& cells, const Prediction& prediction, ProblemType type) {
  if (type == ProblemType::kMultiLabel)
    cells.push_back({nlohmann::json(prediction.labels).dump(), /*is_json=*/true});
  if (type == ProblemType::kSingleLabel) {
    cells.push_back({prediction.label});
    cells.push_back(number(prediction.probability));
  }
  for (const auto& [label, value] : prediction.answers) cells.push_back(number(value));
}

/// The columns are input, label, probability, "probability of X" for each label, error, then those
/// of the inputs' table; of any number of labels, labels instead of label and probability, a JSON
/// list; of a regression value instead of all three; one whose name is taken is renamed to
/// "input.NAME". An input without an answer has its error and empty predictions. Tab-separated if
/// the name ends in .tsv, JSON objects, one per line, if in .jsonl or .ndjson, else comma-separated
/// (RFC 4180).
class PredictionFile {
 public:
  /// Throws UserError or RunError if the file cannot be created.
  PredictionFile(const std::string& path, const Predictor& predictor)
      : file_(path),
        separator_(separator_of(path)),
        type_(predictor.problem_type()),
        names_(answer_columns(predictor)),
        answers_(names_.size() - 1) {
    names_.emplace_back("error");
    for (std::string name : predictor.columns()) {
      while (std::find(names_.begin(), names_.end(), name) != names_.end()) name = "input." + name;
      names_.push_back(std::move(name));
    }
    if (separator_ == 0) return;
    std::vector<TableCell> header;
    for (const std::string& name : names_) header.push_back({name});
    write_row(header);
  }

  void write(const Prediction& prediction) {
    const bool answered = prediction.problem.empty();
    std::vector<TableCell> cells = {{prediction.input}};
    if (answered) append_answers(cells, prediction, type_);
    cells.resize(1 + answers_, no_value());
    cells.push_back(answered ? no_value() : TableCell{prediction.problem});
    cells.insert(cells.end(), prediction.cells.begin(), prediction.cells.end());
    write_row(cells);
  }
  /// Publishes it under its name.
  void commit() { file_.commit(); }

 private:
  void write_row(const std::vector<TableCell>& cells) {
    const std::string row =
        separator_ == 0 ? json_row(names_, cells) : separated_row(cells, separator_);
    file_.write(row.data(), row.size());
  }

  AtomicFile file_;
  const char separator_;  ///< 0: JSON lines.
  const ProblemType type_;
  std::vector<std::string> names_;
  std::size_t answers_ = 0;  ///< Columns between the input and the error.
};

/// Where the predictions go, in the form that was asked for.
class PredictionWriter {
 public:
  PredictionWriter(const PredictArgs& options, const ModelBundle& model, const Predictor& predictor)
      : options_(options),
        classes_(!predictor.labels().empty()),
        type_(predictor.problem_type()),
        report_(
            {{"snapshot", model.path},
             {"step", model.step ? nlohmann::ordered_json(*model.step) : nlohmann::ordered_json()},
             {"predictions", nlohmann::ordered_json::array()}}) {
    if (options.output.empty()) return;
    file_ = std::make_unique<PredictionFile>(options.output, predictor);
  }

  /// An input without an answer is named on standard error, too.
  void write(const Prediction& prediction) {
    if (!prediction.problem.empty()) {
      ++problems_;
      fmt::print(stderr, "warning: {}: no prediction: {}\n", place_of(prediction),
                 prediction.problem);
    }
    if (json_lines()) return print(json_output(prediction_json(prediction, type_)));
    if (options_.json) return report_["predictions"].push_back(prediction_json(prediction, type_));
    if (file_) return file_->write(prediction);
    if (prediction.problem.empty()) print(prediction_table(prediction, classes_, type_));
  }

  /// Returns how many inputs had no answer.
  int64_t finish() {
    if (options_.json && !json_lines()) print(json_output(report_, 2));
    if (file_) file_->commit();
    return problems_;
  }

 private:
  /// Who types texts sees each answer at once.
  bool json_lines() const { return options_.json && from_standard_input(options_); }

  const PredictArgs& options_;
  const bool classes_;
  const ProblemType type_;
  nlohmann::ordered_json report_;
  std::unique_ptr<PredictionFile> file_;
  int64_t problems_ = 0;
};

}  // namespace

int run_predict(const TrainerArgs& args) {
  const PredictArgs& options = args.predict;
  std::error_code none;  // most often there is no such file yet
  if (std::filesystem::equivalent(options.input, options.output, none))
    throw UserError(fmt::format("--output: {} is the input; give another file", options.output));
  const torch::Device device = chosen_device(options.device);
  const ModelBundle model = open_model(options.snapshot, device);
  const auto predictor = make_predictor(request_of(model, device, options));
  PredictionWriter writer(options, model, *predictor);
  const int64_t at_a_time = from_standard_input(options) ? 1 : 64;
  for (auto some = predictor->next(at_a_time); !some.empty(); some = predictor->next(at_a_time)) {
    for (const Prediction& prediction : some) writer.write(prediction);
  }
  const int64_t problems = writer.finish();
  if (problems == 0) return launch::kExitDone;
  throw RunError(fmt::format("predict: {} could not be read; the lines above name them",
                             counted(problems, "input")));
}

}  // namespace ddp::train
