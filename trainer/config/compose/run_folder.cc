#include "trainer/config/compose/run_folder.h"

#include <fmt/format.h>

#include <filesystem>

#include "trainer/runtime/atomic_file.h"
#include "trainer/runtime/error.h"

namespace ddp::train {

void publish_text(const std::string& folder, const std::string& name, const std::string& text,
                  const std::string& key) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    throw UserError(fmt::format("{}: cannot create {}: {}; choose another folder", key, folder,
                                error.message()));
  }
  publish_if_changed(folder + "/" + name, text);
}

void write_run_folder(const RunConfig& run) {
  const HydraConfig& hydra = run.config.hydra;
  if (hydra.output_subdir.empty()) return;
  const std::string folder = hydra.run_dir + "/" + hydra.output_subdir;
  publish_text(folder, "config.yaml", run.files.config, "hydra.run.dir");
  publish_text(folder, "hydra.yaml", run.files.hydra, "hydra.run.dir");
  publish_text(folder, "overrides.yaml", run.files.overrides, "hydra.run.dir");
}

}  // namespace ddp::train
