// Any text is a configuration or one line of complaint, and what is read can be written and read
// again.
#include <cstdint>
#include <string>

#include "tests/fuzz/check.h"
#include "trainer/config/keys/trainer_keys.h"
#include "trainer/hydra/interpolation/interpolation.h"
#include "trainer/hydra/yaml/node_text.h"
#include "trainer/hydra/yaml/yaml_reader.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/log/message.h"

using namespace ddp::train;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    Node root = read_yaml(text, "cfg.yaml");
    const Node again = read_yaml(node_to_yaml(root), "again.yaml");
    FUZZ_CHECK(same_value(root, again));
    FUZZ_CHECK(!node_to_json(root).empty());
    if (root.kind != Kind::kMap) return 0;
    resolve_interpolations(root, &root);
    trainer_keys().check(root, "");
  } catch (const UserError& error) {
    FUZZ_CHECK(one_line(error.what()).find('\n') == std::string::npos);
  }
  return 0;
}
