#include "trainer/metrics/event_messages.h"

#include <bit>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <vector>

#include "trainer/metrics/crc32c.h"

namespace ddp::train {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

template <class T>
void add_raw(std::string& bytes, T value) {
  char raw[sizeof value];
  std::memcpy(raw, &value, sizeof value);
  bytes.append(raw, sizeof value);
}

/// Fields of one message, in order.
class Message {
 public:
  Message& whole(int field, int64_t value) {
    key(field, kVarint);
    varint(static_cast<uint64_t>(value));
    return *this;
  }
  Message& real(int field, double value) {
    key(field, kFixed64);
    add_raw(bytes_, value);
    return *this;
  }
  Message& single(int field, float value) {
    key(field, kFixed32);
    add_raw(bytes_, value);
    return *this;
  }
  Message& bytes(int field, std::string_view value) {
    key(field, kLengthDelimited);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  Message& message(int field, const Message& value) { return bytes(field, value.bytes_); }
  Message& packed(int field, const std::vector<double>& values) {
    std::string raw;
    for (const double value : values) add_raw(raw, value);
    return bytes(field, raw);
  }
  const std::string& str() const { return bytes_; }

 private:
  enum Wire : uint64_t { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };
  void key(int field, Wire wire) { varint(static_cast<uint64_t>(field) << 3 | wire); }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

Message event_at(double time, int64_t step) { return Message().real(1, time).whole(2, step); }

constexpr int kFileVersion = 3, kSummary = 5, kSessionLog = 7;                     // of Event
constexpr int kValue = 1;                                                          // of Summary
constexpr int kTag = 1, kSimpleValue = 2, kHisto = 5, kTensor = 8, kMetadata = 9;  // of its Value

}  // namespace

std::string version_event(double time) {
  return Message().real(1, time).bytes(kFileVersion, "brain.Event:2").str();
}

std::string start_event(double time, int64_t first_step) {
  constexpr int kStart = 1;
  return event_at(time, first_step).message(kSessionLog, Message().whole(1, kStart)).str();
}

std::string scalars_event(const MetricRecord& record) {
  Message summary;
  for (const auto& [name, value] : record.values) {
    summary.message(kValue, Message()
                                .bytes(kTag, record.split + "/" + name)
                                .single(kSimpleValue, static_cast<float>(value)));
  }
  return event_at(record.time, record.step).message(kSummary, summary).str();
}

std::string text_event(const TextRecord& record) {
  constexpr int kString = 7;       // DataType DT_STRING
  constexpr int kTensorClass = 2;  // DataClass DATA_CLASS_TENSOR
  const Message one_dimension = Message().message(2, Message().whole(1, 1));
  const Message tensor =
      Message().whole(1, kString).message(2, one_dimension).bytes(8, record.text);
  const Message metadata = Message().message(1, Message().bytes(1, "text")).whole(4, kTensorClass);
  const Message value =
      Message().bytes(kTag, record.tag).message(kTensor, tensor).message(kMetadata, metadata);
  return event_at(record.time, record.step)
      .message(kSummary, Message().message(kValue, value))
      .str();
}

std::string histogram_event(const HistogramRecord& record) {
  const Histogram& histogram = record.histogram;
  const Message histo = Message()
                            .real(1, histogram.min)
                            .real(2, histogram.max)
                            .real(3, static_cast<double>(histogram.count))
                            .real(4, histogram.sum)
                            .real(5, histogram.sum_squares)
                            .packed(6, histogram.limits)
                            .packed(7, histogram.counts);
  const Message value = Message().bytes(kTag, record.tag).message(kHisto, histo);
  return event_at(record.time, record.step)
      .message(kSummary, Message().message(kValue, value))
      .str();
}

std::string framed(const std::string& data) {
  std::string length;
  add_raw(length, static_cast<uint64_t>(data.size()));
  std::string record = length;
  add_raw(record, masked_crc32c(length));
  record += data;
  add_raw(record, masked_crc32c(data));
  return record;
}

}  // namespace ddp::train
