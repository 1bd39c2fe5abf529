// preference_config: the loss of task=preference.
#pragma once

#include "trainer/config/value_types.h"

namespace ddp::train {

enum class PreferenceLoss { kSigmoid, kRobust, kIpo, kOrpo };
inline Names names_of(PreferenceLoss) {
  return {"sigmoid", "robust", "ipo", "orpo", "dpo=sigmoid"};
}

struct PreferenceConfig {
  PreferenceLoss loss_type = PreferenceLoss::kSigmoid;
  double beta = 0.1;
  double label_smoothing = 0.0;
};

}  // namespace ddp::train
