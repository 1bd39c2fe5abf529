// A short text that a language model generates during its training.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trainer/data/sample_source.h"
#include "trainer/model/causal_model.h"
#include "trainer/model/sampling_options.h"
#include "trainer/tokenizer/tokenizer.h"

namespace ddp::train {

/// `prompt` (at least one token) and its continuation by options.max_new_tokens tokens, or up to
/// `end`; always valid UTF-8. Returns nullopt if `go_on`, called before each token, returns false.
/// Restores the model's mode.
std::optional<std::string> sample_text(CausalModel& model, const Tokenizer& tokenizer,
                                       std::vector<int32_t> prompt, std::optional<int32_t> end,
                                       const SamplingOptions& options,
                                       const std::function<bool()>& go_on);

/// The first tokens of the first of these samples, 16 at most.
std::vector<int32_t> beginning_of(const SampleSource& samples);

}  // namespace ddp::train
