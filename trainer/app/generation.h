// The common parts of text generation and chat.
#pragma once

#include <chrono>
#include <cstdint>

#include "trainer/app/arguments/trainer_args.h"
#include "trainer/task/generate/decoder.h"
#include "trainer/task/model_bundle.h"

namespace ddp::train {

/// Prints to stderr how fast `tokens` were generated, and what CUDA graphs did; nothing if there
/// were none.
void report_speed(int64_t tokens, std::chrono::steady_clock::duration time, torch::Device device,
                  const GraphUse& graphs);

/// `trainer generate --chat`: a conversation with `model`, from standard input or one message of
/// --prompt. Throws UserError if the model has no chat template or cannot take a message; a person
/// typing sees that line instead and may continue.
void chat(const ModelBundle& model, const GenerateArgs& options, torch::Device device);

}  // namespace ddp::train
