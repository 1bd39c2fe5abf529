#include "trainer/metrics/event_messages.h"

#include <array>
#include <bit>
#include <cstring>
#include <vector>

namespace ddp::train {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

constexpr std::array<uint32_t, 256> make_table() {
  constexpr uint32_t kReflected = 0x82F63B78;
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < table.size(); ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? kReflected : 0);
    table[i] = value;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kTable = make_table();

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

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = 0xFFFFFFFF;
  for (const char c : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint8_t>(c)) & 0xFF];
  return ~crc;
}

uint32_t masked_crc32c(std::string_view bytes) {
  constexpr uint32_t kMask = 0xA282EAD8;
  const uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + kMask;
}

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
