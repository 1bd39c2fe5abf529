#include "trainer/run/early_stopping.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "trainer/runtime/error.h"
#include "trainer/runtime/files/foreign_json.h"
#include "trainer/runtime/files/json_number.h"

namespace ddp::train {

void EarlyStopping::evaluated(double score) {
  const bool progress = !std::isnan(score) && (!best_ || score < *best_ - min_delta_);
  without_progress_ = progress ? 0 : without_progress_ + 1;
  if (progress) best_ = score;
}

void EarlyStopping::forget() {
  best_.reset();
  without_progress_ = 0;
}

std::string EarlyStopping::state() const {
  if (!best_ && without_progress_ == 0) return "";
  nlohmann::json state = {{"without_progress", without_progress_}};
  if (best_) state["best"] = json_number(*best_);
  return state.dump();
}

void EarlyStopping::load_state(const std::string& state) {
  forget();
  if (state.empty()) return;
  try {
    const auto json = nlohmann::json::parse(state);
    without_progress_ = json.at("without_progress").get<int64_t>();
    if (json.contains("best")) best_ = number_from_json(json.at("best"));
  } catch (const nlohmann::json::exception& error) {
    throw RunError(std::string("damaged early_stopping in the snapshot: ") +
                   plain_json_error(error.what()));
  }
}

}  // namespace ddp::train
