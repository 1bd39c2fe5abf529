// One HTML file about one or several runs: curves, configuration, environment, account, samples.
#pragma once

#include <string>
#include <vector>

#include "trainer/report/run_data.h"

namespace ddp::train {

/// Self-contained: no network, no other file. Below 1 MB for any number of steps, as series are
/// thinned to fit; foreign text cannot become markup or script. `made`: Unix seconds.
std::string report_page(const std::vector<RunData>& runs, double made, const std::string& program);

/// Reads the folders and publishes the page at `output`. Throws UserError if a folder is not a
/// run's, RunError if the page cannot be written.
void write_report(const std::vector<std::string>& folders, const std::string& output,
                  const std::string& program);

}  // namespace ddp::train
