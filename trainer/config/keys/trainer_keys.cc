#include "trainer/config/keys/trainer_keys.h"

#include "trainer/config/keys/key_table.h"
#include "trainer/config/keys/peer_names.h"

namespace ddp::train {

const KnownKeys& trainer_keys() {
  static const KnownKeys keys = [] {
    std::vector<std::string> paths;
    for (const Field& field : config_fields()) paths.push_back(field.path);
    return KnownKeys(paths, peer_names());
  }();
  return keys;
}

}  // namespace ddp::train
