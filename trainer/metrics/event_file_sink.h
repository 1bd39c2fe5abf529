// Event files for TensorBoard: `tensorboard --logdir FOLDER`.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "trainer/metrics/append_file.h"
#include "trainer/metrics/metric_sink.h"

namespace ddp::train {

/// Every process writes a file of its own, named so that TensorBoard reads them in the order in
/// which they were begun. What a reader is to forget after a resume is written to the new file:
/// those of earlier attempts stay as they are.
class EventFileSink : public MetricSink {
 public:
  /// Creates the folder and the file with the first call. `config`, when not empty, is its first
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

/// A text as Markdown shows it letter by letter: a block of code.
std::string as_markdown_code(std::string_view text);

}  // namespace ddp::train
