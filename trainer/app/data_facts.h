// What an estimate needs to know of the data.
#pragma once

#include <cstdint>

#include "trainer/config/config.h"

namespace ddp::train {

struct DataFacts {
  int64_t vocab_size = 0;
  int64_t samples = 0;  ///< Of an epoch.
};

/// Opens the data as training does. Throws UserError.
DataFacts read_data_facts(const Config& config);

}  // namespace ddp::train
