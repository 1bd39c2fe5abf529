// One function for each mode whose options do not fit into trainer_args.cc.
#pragma once

#include "trainer/app/arguments/parsed_options.h"
#include "trainer/app/arguments/trainer_args.h"

namespace ddp::train {

TrainerArgs parse_generate(const Parsed& parsed);
TrainerArgs parse_eval(const Parsed& parsed);
TrainerArgs parse_predict(const Parsed& parsed);
TrainerArgs parse_export(const Parsed& parsed);

}  // namespace ddp::train
