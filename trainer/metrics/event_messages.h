// The messages of TensorBoard's event files, in the wire format of Protocol Buffers
// (protobuf.dev/programming-guides/encoding). Field numbers: tensorboard/compat/proto/event.proto,
// summary.proto and tensor.proto. Only the few that this program writes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trainer/metrics/metric_sink.h"

namespace ddp::train {

/// Bytes of one `Event` each.
std::string version_event(double time);
/// SessionLog START: a reader discards `first_step` and later ones.
std::string start_event(double time, int64_t first_step);
/// A scalar "split/name" for each value.
std::string scalars_event(const MetricRecord& record);
/// A text, which TensorBoard shows as Markdown.
std::string text_event(const TextRecord& record);
std::string histogram_event(const HistogramRecord& record);

/// A record of a TFRecord file: length, its masked CRC, data, its masked CRC; little-endian
/// (tensorflow.org/tutorials/load_data/tfrecord).
std::string framed(const std::string& data);

/// CRC-32C (Castagnoli): polynomial 0x1EDC6F41, reflected (RFC 3720, B.4). crc32c("123456789") is
/// 0xE3069283.
uint32_t crc32c(std::string_view bytes);

/// As stored next to the data it covers: tensorflow/core/lib/hash/crc32c.h, Mask().
uint32_t masked_crc32c(std::string_view bytes);

}  // namespace ddp::train
