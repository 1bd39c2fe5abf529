// XXH3-128 of a block of memory: a checksum against damage, not against forgery. https://xxhash.com
#pragma once

#include <cstddef>
#include <string>

namespace ddp::train {

/// 32 hex digits, as `xxhsum -H2` prints them.
std::string xxh3_hex(const void* data, std::size_t size);

}  // namespace ddp::train
