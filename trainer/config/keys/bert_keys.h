// The keys of bert_config: rows of the table in key_table.cc.
#pragma once

#include <vector>

#include "trainer/config/keys/key_table.h"

namespace ddp::train {

std::vector<Field> bert_fields();

}  // namespace ddp::train
