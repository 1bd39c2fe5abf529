// Any override changes the configuration or is one complaint; what a sweep makes of it is an
// override again. Input: overrides, one per line.
#include <cstdint>
#include <string>

#include "tests/fuzz/check.h"
#include "trainer/hydra/override/override_apply.h"
#include "trainer/hydra/override/overrides.h"
#include "trainer/hydra/yaml/node_text.h"
#include "trainer/hydra/yaml/yaml_reader.h"
#include "trainer/runtime/error.h"

using namespace ddp::train;

namespace {

void try_one(const std::string& text, Node& root) {
  const Override change = parse_override(text);
  if (!change.sweep) {
    apply_override(root, change, false);
    FUZZ_CHECK(!node_to_json(root).empty());
    return;
  }
  const bool computed = change.sweep->kind == SweepKind::kRange;
  for (const std::string& value : sweep_values(*change.sweep, {"one", "two"}))
    FUZZ_CHECK(!computed || !parse_override("a=" + value).sweep);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Node context = read_yaml(
      "a: 1\nb: {c: 2, d: {e: 3}, l: [1, 2, 3]}\nn: null\nm: ???\ns: text\ni: ${a}\nz: {}\nq: []\n",
      "cfg.yaml");
  Node root = context;
  std::string rest(reinterpret_cast<const char*>(data), size);
  while (!rest.empty()) {
    const std::string line = rest.substr(0, rest.find('\n'));
    rest.erase(0, line.size() + 1);
    try {
      try_one(line, root);
    } catch (const UserError& error) {
      FUZZ_CHECK(error.what()[0] != '\0');
    }
  }
  return 0;
}
