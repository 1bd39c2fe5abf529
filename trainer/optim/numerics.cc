#include "trainer/optim/numerics.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "trainer/optim/amp.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

constexpr const char* kCublasWorkspace = "CUBLAS_WORKSPACE_CONFIG";
constexpr const char* kReproducible = ":4096:8";     // 24 MiB
constexpr const char* kSmallReproducible = ":16:8";  // slower

void pin_cublas_workspace() {
  const char* value = std::getenv(kCublasWorkspace);
  const std::string trouble = cublas_workspace_trouble(value);
  if (!trouble.empty()) throw UserError("trainer_config.deterministic: " + trouble);
  if (value == nullptr) ::setenv(kCublasWorkspace, kReproducible, 1);
}

}  // namespace

std::string cublas_workspace_trouble(const char* value) {
  if (value == nullptr) return "";
  const std::string_view given = value;
  if (given == kReproducible || given == kSmallReproducible) return "";
  return fmt::format(
      "the environment has {}={}, with which cuBLAS does not repeat its results; unset it, or set "
      "it to {} or {}",
      kCublasWorkspace, given, kReproducible, kSmallReproducible);
}

void apply_numerics(const TrainerConfig& config, torch::Device device) {
  if (config.deterministic && device.is_cuda()) pin_cublas_workspace();
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(config.deterministic, /*warn_only=*/false);
  context.setDeterministicCuDNN(config.deterministic);
  context.setAllowTF32CuBLAS(config.tf32);
  context.setAllowTF32CuDNN(config.tf32);
}

std::string precision_name(const TrainerConfig& config, torch::Device device) {
  if (const auto dtype = autocast_dtype(config))
    return fmt::format("{} autocast", c10::toString(*dtype));
  return config.tf32 && device.is_cuda() ? "tf32" : "float32";
}

}  // namespace ddp::train
