// One function for each mode whose options do not fit into trainer_args.cc.
#pragma once

#include "trainer/app/arguments/parsed_options.h"
#include "trainer/app/arguments/trainer_args.h"

namespace ddp::train {

/// Returns the arguments that print a page of help.
TrainerArgs help_args(std::string text);

TrainerArgs parse_generate(const Words& words);
TrainerArgs parse_eval(const Words& words);
TrainerArgs parse_predict(const Words& words);
TrainerArgs parse_export(const Words& words);

}  // namespace ddp::train
