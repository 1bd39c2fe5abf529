// Any text with ${...} in it has a value or one complaint.
#include <cstdint>
#include <string>

#include "tests/fuzz/check.h"
#include "trainer/hydra/interpolation/interpolation.h"
#include "trainer/hydra/yaml/node_text.h"
#include "trainer/hydra/yaml/yaml_reader.h"
#include "trainer/runtime/error.h"

using namespace ddp::train;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Node context = read_yaml(
      "b: 5\nc: {d: x, e: [1, two], g: [{h: 9}]}\nn: null\nm: ???\nt: '12'\nk: d\n"
      "hydra: {job: {name: '${a}'}}\n",
      "cfg.yaml");
  Node root = context;
  set_path(root, "a", Node::of(std::string(reinterpret_cast<const char*>(data), size)));
  set_path(root, "c.i", Node::of(std::string("${..a}")));
  try {
    check_interpolations(root);
    const Node composed = root;
    resolve_interpolations(root, &composed);
    FUZZ_CHECK(root.find("a") != nullptr);
    FUZZ_CHECK(!node_to_json(root).empty());
  } catch (const UserError& error) {
    FUZZ_CHECK(error.what()[0] != '\0');
  }
  return 0;
}
