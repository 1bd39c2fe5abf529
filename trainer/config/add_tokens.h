// data_config.add_tokens, apart from DataConfig so that few files depend on it.
#pragma once

#include <string>
#include <vector>

namespace ddp::train {

struct Config;

/// Texts that the tokenizer has as its last tokens: they are appended if it lacks them.
const std::vector<std::string>& add_tokens(const Config& config);

}  // namespace ddp::train
