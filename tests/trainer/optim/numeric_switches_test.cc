// tf32 and deterministic algorithms, as far as a CPU shows them.
#include "trainer/optim/numerics.h"

#include "tests/support/catch.h"

#include "trainer/runtime/error.h"

namespace ddp::train {

TEST_CASE("deterministic and tf32 set torch's switches, and the next run sets them back") {
  TrainerConfig config;
  config.deterministic = true;
  config.tf32 = true;
  apply_numerics(config, torch::kCPU);
  CHECK(at::globalContext().deterministicAlgorithms());
  CHECK_FALSE(at::globalContext().deterministicAlgorithmsWarnOnly());
  CHECK(at::globalContext().deterministicCuDNN());
  CHECK(at::globalContext().allowTF32CuBLAS());
  apply_numerics(TrainerConfig{}, torch::kCPU);
  CHECK_FALSE(at::globalContext().deterministicAlgorithms());
  CHECK_FALSE(at::globalContext().deterministicCuDNN());
  CHECK_FALSE(at::globalContext().allowTF32CuBLAS());
}

TEST_CASE("an operator without a deterministic kernel is refused in a deterministic run") {
  TrainerConfig config;
  config.deterministic = true;
  apply_numerics(config, torch::kCPU);
  auto values = torch::zeros({4});
  CHECK_THROWS(values.put_(torch::tensor({1, 1}), torch::tensor({1.0F, 2.0F})));
  apply_numerics(TrainerConfig{}, torch::kCPU);
  CHECK_NOTHROW(values.put_(torch::tensor({1, 1}), torch::tensor({1.0F, 2.0F})));
}

TEST_CASE("cuBLAS repeats its results with two workspaces only, and the fix is said") {
  CHECK(cublas_workspace_trouble(nullptr).empty());
  CHECK(cublas_workspace_trouble(":4096:8").empty());
  CHECK(cublas_workspace_trouble(":16:8").empty());
  CHECK_THAT(cublas_workspace_trouble(":0:0"),
             Catch::Contains("CUBLAS_WORKSPACE_CONFIG=:0:0") &&
                 Catch::Contains("unset it, or set it to :4096:8"));
  CHECK_FALSE(cublas_workspace_trouble("").empty());
}

TEST_CASE("the precision in words is that of the matrix products") {
  TrainerConfig config;
  CHECK(precision_name(config, torch::kCPU) == "float32");
  config.tf32 = true;
  CHECK(precision_name(config, torch::kCPU) == "float32");
  CHECK(precision_name(config, torch::kCUDA) == "tf32");
  config.use_amp = true;
  config.amp_dtype = AmpDtype::kBFloat16;
  CHECK(precision_name(config, torch::kCUDA) == "BFloat16 autocast");
}

}  // namespace ddp::train
