// The help pages of trainer, one text each, whose lines declare the options (a golden file in
// tests/trainer/config fixes them), and the parsers that do not fit into trainer_args.cc.
#pragma once

#include <string>

#include "trainer/app/arguments/parsed_options.h"
#include "trainer/app/arguments/trainer_args.h"

namespace ddp::train {

std::string help_overall();
std::string help_generate();
std::string help_eval();
std::string help_predict();
std::string help_export();
std::string help_estimate();
std::string help_plan();
std::string help_inspect();
std::string help_doctor();
std::string help_tokenize();
std::string help_data();
std::string help_report();

TrainerArgs parse_generate(const Parsed& parsed);
TrainerArgs parse_eval(const Parsed& parsed);
TrainerArgs parse_predict(const Parsed& parsed);
TrainerArgs parse_export(const Parsed& parsed);

}  // namespace ddp::train
