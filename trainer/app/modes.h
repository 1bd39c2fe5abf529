// The modes of `trainer`, one function each. Each returns the exit code; errors are thrown.
#pragma once

#include "trainer/app/arguments/trainer_args.h"

namespace ddp::train {

/// `trainer --config FILE [key=value ...]`: 0 if trained to the end, 128 + signal if stopped and
/// saved.
int run_train(const TrainerArgs& args);
/// `trainer --multirun ...`: 0 if every job has trained to its end, 1 if one failed, 75 if stopped
/// (later jobs are left out). A job that fails does not end the sweep.
int run_multirun(const TrainerArgs& args);
/// `trainer generate`: only prompts and continuations on stdout, the speed on stderr.
int run_generate(const TrainerArgs& args);
/// `trainer export`: the names of the written files on stdout.
int run_export(const TrainerArgs& args);
/// `trainer estimate`: 0 even if it does not fit; starts nothing.
int run_estimate(const TrainerArgs& args);
/// `trainer plan`: 0 even if nothing fits; starts nothing.
int run_plan(const TrainerArgs& args);
/// `trainer eval`, alone or under a launcher: a snapshot's metrics on a text.
int run_eval(const TrainerArgs& args);
/// `trainer eval --suite`, alone or under a launcher: a model's scores on questions.
int run_eval_suite(const EvalArgs& options);
/// `trainer predict`: a trained model's predictions.
int run_predict(const TrainerArgs& args);
/// `trainer inspect SNAPSHOT [--json]`
int run_inspect(const TrainerArgs& args);
/// `trainer doctor`, alone or under a launcher: 0 if everything works, 1 with the problems and
/// their fixes.
int run_doctor(const TrainerArgs& args);
/// `trainer tokenize`: texts into a folder of token files.
int run_tokenize(const TrainerArgs& args);
/// `trainer data show`: the first samples on stdout; trains nothing.
int run_data_show(const TrainerArgs& args);

/// Runs args.mode.
int run_mode(const TrainerArgs& args);

}  // namespace ddp::train
