#include "trainer/metrics/prometheus_sink.h"

#include <fmt/format.h>

#include <cmath>
#include <set>

#include "launcher/worker_contract.h"
#include "trainer/runtime/files/atomic_file.h"

namespace ddp::train {
namespace {

/// Names of metrics hold letters, digits and _.
std::string metric_name(const std::string& name) {
  std::string legal = "trainer_";
  for (const char c : name) {
    const bool fits = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    legal += fits ? c : '_';
  }
  return legal;
}

std::string sample_value(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

}  // namespace

PrometheusSink::PrometheusSink(const std::string& folder)
    : path_(folder + "/" + launch::kMetricsFile) {}

void PrometheusSink::write(const MetricRecord& record) {
  newest_[record.split] = record;
  publish_text(path_, prometheus_text(newest_));  // in memory: its syncs cost nothing
}

std::string prometheus_text(const std::map<std::string, MetricRecord>& newest) {
  std::map<std::string, std::string> families;  // the samples of one name stand together
  for (const auto& [split, record] : newest) {
    std::set<std::string> names;  // those of labels may differ in other characters alone
    const auto add = [&, &name_of_split = split](const std::string& name, double value) {
      const std::string legal = metric_name(name);
      if (!names.insert(legal).second) return;
      families[legal] +=
          fmt::format("{}{{split=\"{}\"}} {}\n", legal, name_of_split, sample_value(value));
    };
    add("step", static_cast<double>(record.step));
    add("epoch", record.epoch);
    for (const auto& [name, value] : record.values) add(name, value);
  }
  std::string text;
  for (const auto& [name, samples] : families)
    text += fmt::format("# TYPE {} gauge\n{}", name, samples);
  return text;
}

}  // namespace ddp::train
