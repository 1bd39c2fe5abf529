// trainer predict: what a trained model makes of a text, or of the inputs in a file or folder.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "launcher/worker_contract.h"
#include "trainer/app/chosen_device.h"
#include "trainer/app/modes.h"
#include "trainer/app/prediction_file.h"
#include "trainer/app/standard_output.h"
#include "trainer/metrics/text.h"
#include "trainer/runtime/error.h"
#include "trainer/snapshot/open_model.h"
#include "trainer/task/predictor.h"

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

/// Paths and texts of standard input may be other than UTF-8.
std::string as_text(const nlohmann::ordered_json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
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
    if (json_lines()) return print(as_text(prediction_json(prediction, type_), -1));
    if (options_.json) return report_["predictions"].push_back(prediction_json(prediction, type_));
    if (file_) return file_->write(prediction);
    if (prediction.problem.empty()) print(prediction_table(prediction, classes_, type_));
  }

  /// Returns how many inputs had no answer.
  int64_t finish() {
    if (options_.json && !json_lines()) print(as_text(report_, 2));
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
