// Event files for TensorBoard: `tensorboard --logdir FOLDER`.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "trainer/metrics/append_file.h"
#include "trainer/metrics/metric_sink.h"

namespace ddp::train {

/// Every process writes its own file, named so that TensorBoard reads the files in the order of
/// their creation. After a resume the new file lists the steps that readers discard; files of
/// earlier attempts stay unchanged.
class EventFileSink : public MetricSink {
 public:
  /// Creates the folder and the file on the first call. `config`, unless empty, is its first
  /// text.
  explicit EventFileSink(std::string folder, std::string config = "");

  void begin_after(int64_t step) override;
  void write(const MetricRecord& record) override;
  void write_text(const TextRecord& record) override;
  void write_histogram(const HistogramRecord& record) override;

 private:
  void append(const std::string& event);

  std::string folder_;
  const std::string config_;
  std::unique_ptr<AppendFile> file_;
};

/// Returns a text as a Markdown code block, which shows it verbatim.
std::string as_markdown_code(std::string_view text);

}  // namespace ddp::train
