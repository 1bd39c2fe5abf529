// Runs interop_peer.py, and reads what it wrote.
#pragma once

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/support/catch.h"

#include "tests/support/skip.h"
#include "trainer/tensorfile/safetensors.h"

namespace ddp::train::test {

/// Returns false, with a message, if the peer is not installed; checks that it succeeds.
inline bool ask_peer(const std::vector<std::string>& words) {
  constexpr int kSkipped = 77, kWithoutPeft = 78;
  std::string command =
      std::string(DDP_TEST_PYTHON) + " -B " + DDP_TEST_DIR + "/interop/interop_peer.py";
  for (const auto& word : words) command += " '" + word + "'";
  // NOLINTNEXTLINE(bugprone-command-processor): the words are the test's own
  const int status = std::system(command.c_str());
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kSkipped) {
    ddp::test::say_skipped(std::string(DDP_TEST_PYTHON) +
                           " cannot import transformers (./scripts/setup.sh --test)");
    return false;
  }
  if (WEXITSTATUS(status) == kWithoutPeft) {
    ddp::test::say_skipped("peft is not in .cache/peers: bash .ci/run setup");
    return false;
  }
  CHECK(WEXITSTATUS(status) == 0);
  return WEXITSTATUS(status) == 0;
}

inline torch::Tensor read_tensor(const SafetensorsFile& file, const std::string& name,
                                 torch::ScalarType type) {
  const TensorBytes* bytes = file.find(name);
  REQUIRE(bytes != nullptr);
  auto tensor = torch::empty(bytes->shape, type);
  REQUIRE(tensor.nbytes() == bytes->size);
  std::memcpy(tensor.mutable_data_ptr(), bytes->data, bytes->size);
  return tensor;
}

}  // namespace ddp::train::test
