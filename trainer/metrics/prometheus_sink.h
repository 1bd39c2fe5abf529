// The newest numbers of a run as Prometheus text, for ddp-run's /metrics.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "trainer/metrics/metric_sink.h"

namespace ddp::train {

/// Replaces launch::kMetricsFile in `folder` with each record: a gauge trainer_<value> with the
/// label split for each value, trainer_step and trainer_epoch.
class PrometheusSink : public MetricSink {
 public:
  explicit PrometheusSink(const std::string& folder);

  void begin_after(int64_t /*step*/) override { newest_.clear(); }
  void write(const MetricRecord& record) override;

 private:
  std::string path_;
  std::map<std::string, MetricRecord> newest_;  // by split
};

/// Text format 0.0.4.
std::string prometheus_text(const std::map<std::string, MetricRecord>& newest);

}  // namespace ddp::train
