// trainer predict: what a trained model makes of a text, or of the inputs in a file or folder.
#include <fmt/format.h>
#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "launcher/worker_contract.h"
#include "trainer/app/modes.h"
#include "trainer/app/standard_output.h"
#include "trainer/config/keys/config_text.h"
#include "trainer/metrics/text.h"
#include "trainer/parallel/dist_env.h"
#include "trainer/parallel/process_group.h"
#include "trainer/runtime/atomic_file.h"
#include "trainer/runtime/error.h"
#include "trainer/snapshot/remote_snapshots.h"
#include "trainer/snapshot/snapshot.h"
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

PredictRequest request_of(const OpenedSnapshot& snapshot, const PredictArgs& options) {
  PredictRequest request;
  request.config = config_from_json(snapshot.meta.config_json);
  request.config.trainer.device = options.device;
  request.metadata = snapshot.meta.task;
  request.text = options.text;
  request.input = options.input;
  if (from_standard_input(options)) request.next_line = line_of_standard_input;
  request.most_answers = options.top;
  request.device = plan_device(request.config, DistEnv{}).device;
  request.load = [&snapshot](const std::vector<Parameter>& parameters,
                             const std::vector<NamedTensor>& buffers) {
    for (const auto& p : parameters)
      snapshot.load_into(evaluated_tensor(*snapshot.file, p.name), p.tensor);
    for (const auto& [name, tensor] : buffers) snapshot.load_into("buffer." + name, tensor);
  };
  return request;
}

nlohmann::ordered_json prediction_json(const Prediction& prediction) {
  if (!prediction.problem.empty())
    return {{"input", prediction.input}, {"problem", prediction.problem}};
  auto answers = nlohmann::ordered_json::array();
  for (const auto& [answer, probability] : prediction.answers)
    answers.push_back({{"answer", answer}, {"probability", probability}});
  return {{"input", prediction.input},
          {"label", prediction.label},
          {"probability", prediction.probability},
          {"answers", std::move(answers)}};
}

/// The `top` most likely answers, or of a classifier the most likely one alone.
std::string prediction_table(const Prediction& prediction, bool classes) {
  if (classes && prediction.problem.empty())
    return fmt::format("{}  {}  {:.4f}\n", prediction.input, prediction.label,
                       prediction.probability);
  std::string text = prediction.input + "\n";
  for (const auto& [answer, probability] : prediction.answers)
    text += fmt::format("  {:<20} {:.4f}\n", answer, probability);
  return text;
}

/// RFC 4180: quotes where the field has a comma, a quote or a line end.
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

std::string csv_header(const std::vector<std::string>& labels) {
  std::string line = "input,label,probability";
  for (const std::string& label : labels)
    line += fmt::format(",{}", csv_field(fmt::format("probability of {}", label)));
  return line + "\n";
}

std::string csv_row(const Prediction& prediction, const std::vector<std::string>& labels) {
  std::string line = fmt::format("{},{},{}", csv_field(prediction.input),
                                 csv_field(prediction.label), prediction.probability);
  for (std::size_t i = 0; i < labels.size(); ++i)
    line += fmt::format(",{}", prediction.answers[i].second);
  return line + "\n";
}

/// Where the predictions go, in the form that was asked for.
class PredictionWriter {
 public:
  PredictionWriter(const PredictArgs& options, const OpenedSnapshot& snapshot,
                   const std::vector<std::string>& labels)
      : options_(options),
        labels_(labels),
        report_({{"snapshot", snapshot.path},
                 {"step", snapshot.meta.step},
                 {"predictions", nlohmann::ordered_json::array()}}) {
    if (options.output.empty()) return;
    file_ = std::make_unique<AtomicFile>(options.output);
    write_to_file(csv_header(labels));
  }

  /// An input without an answer is named on standard error and has no row.
  void write(const Prediction& prediction) {
    if (!prediction.problem.empty()) {
      ++problems_;
      fmt::print(stderr, "warning: {}: no prediction: {}\n", prediction.input, prediction.problem);
    }
    if (json_lines()) return print(prediction_json(prediction).dump() + "\n");
    if (options_.json) return report_["predictions"].push_back(prediction_json(prediction));
    if (!prediction.problem.empty()) return;
    if (file_) return write_to_file(csv_row(prediction, labels_));
    print(prediction_table(prediction, !labels_.empty()));
  }

  /// Returns how many inputs had no answer.
  int64_t finish() {
    if (options_.json && !json_lines()) print(report_.dump(2) + "\n");
    if (file_) file_->commit();
    return problems_;
  }

 private:
  /// Who types texts sees each answer at once.
  bool json_lines() const { return options_.json && from_standard_input(options_); }
  void write_to_file(const std::string& text) { file_->write(text.data(), text.size()); }

  const PredictArgs& options_;
  const std::vector<std::string>& labels_;
  nlohmann::ordered_json report_;
  std::unique_ptr<AtomicFile> file_;
  int64_t problems_ = 0;
};

}  // namespace

int run_predict(const TrainerArgs& args) {
  const PredictArgs& options = args.predict;
  const FetchedSnapshot fetched(options.snapshot);
  const OpenedSnapshot snapshot = open_snapshot(fetched.file());
  const auto predictor = make_predictor(request_of(snapshot, options));
  PredictionWriter writer(options, snapshot, predictor->labels());
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
