// The keys of image_config: rows of the table in key_table.cc.
#pragma once

#include <vector>

#include "trainer/config/keys/key_table.h"

namespace ddp::train {

std::vector<Field> image_fields();

}  // namespace ddp::train
