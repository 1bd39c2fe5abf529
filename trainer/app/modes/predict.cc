// trainer predict: what a trained model makes of a text.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "launcher/worker_contract.h"
#include "trainer/app/modes.h"
#include "trainer/app/standard_output.h"
#include "trainer/config/keys/config_text.h"
#include "trainer/parallel/dist_env.h"
#include "trainer/parallel/process_group.h"
#include "trainer/snapshot/remote_snapshots.h"
#include "trainer/snapshot/snapshot.h"
#include "trainer/task/predictor.h"

namespace ddp::train {
namespace {

PredictRequest request_of(const OpenedSnapshot& snapshot, const PredictArgs& options) {
  PredictRequest request;
  request.config = config_from_json(snapshot.meta.config_json);
  request.config.trainer.device = options.device;
  request.metadata = snapshot.meta.task;
  request.text = options.text;
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
  auto answers = nlohmann::ordered_json::array();
  for (const auto& [answer, probability] : prediction.answers)
    answers.push_back({{"answer", answer}, {"probability", probability}});
  return {{"input", prediction.input},
          {"label", prediction.label},
          {"probability", prediction.probability},
          {"answers", std::move(answers)}};
}

std::string prediction_table(const Prediction& prediction) {
  std::string text = prediction.input + "\n";
  for (const auto& [answer, probability] : prediction.answers)
    text += fmt::format("  {:<20} {:.4f}\n", answer, probability);
  return text;
}

}  // namespace

int run_predict(const TrainerArgs& args) {
  const PredictArgs& options = args.predict;
  const FetchedSnapshot fetched(options.snapshot);
  const OpenedSnapshot snapshot = open_snapshot(fetched.file());
  const auto predictor = make_predictor(request_of(snapshot, options));
  nlohmann::ordered_json report = {{"snapshot", snapshot.path},
                                   {"step", snapshot.meta.step},
                                   {"predictions", nlohmann::ordered_json::array()}};
  std::string table;
  constexpr int64_t kAtATime = 64;
  for (auto some = predictor->next(kAtATime); !some.empty(); some = predictor->next(kAtATime)) {
    for (const Prediction& prediction : some) {
      report["predictions"].push_back(prediction_json(prediction));
      table += prediction_table(prediction);
    }
  }
  print(options.json ? report.dump(2) + "\n" : table);
  return launch::kExitDone;
}

}  // namespace ddp::train
