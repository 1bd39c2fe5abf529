#include "trainer/app/load_run.h"

#include "trainer/model/cost/model_sizes.h"
#include "trainer/model/start_from.h"

namespace ddp::train {

RunConfig load_run(const ConfigSource& source, const std::vector<std::string>& overrides,
                   std::optional<int64_t> sweep_job, DataFiles data) {
  RunConfig run = read_run(source, overrides, sweep_job, data, follow_init_from);
  complete_model(run.config, run.given);
  return run;
}

Config load_config(const ConfigSource& source, const std::vector<std::string>& overrides) {
  return load_run(source, overrides).config;
}

}  // namespace ddp::train
