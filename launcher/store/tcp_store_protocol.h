// The wire format of torch's TCPStore, as of torch 2.11 to 2.15: requests, and the parser that
// reads them from a byte stream. Every length from the network is checked before memory is
// allocated.
//
// A client first sends VALIDATE and a magic number. Then each request is one byte, its type, and
// its fields, in the machine's byte order; a key or value is a 64-bit length and as many bytes.
// Only some requests have an answer (key_values.h). Learned from
// torch/csrc/distributed/c10d/TCPStore*.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::launch {

enum class QueryType : std::uint8_t {
  kValidate,
  kSet,
  kCompareSet,
  kGet,
  kAdd,
  kCheck,
  kWait,
  kGetNumKeys,
  kDeleteKey,
  kAppend,
  kMultiGet,
  kMultiSet,
  kCancelWait,
  kPing,
  kQueuePush,
  kQueuePop,
  kQueueLen,
  kListKeys,
  kBarrier,
};

/// The fields of each type: k key, v value, i 64-bit number, u 32-bit number; # is a count of
/// repetitions of the rest.
constexpr std::array<std::string_view, 19> kRequestFields{
    "u",  "kv",  "kvv", "k", "ki", "#k", "#k", "", "k", "kv",
    "#k", "#kv", "",    "u", "kv", "k",  "k",  "", "ki"};

constexpr std::uint32_t kTcpStoreMagic = 0x3C85F7CE;

// One-byte answers.
constexpr char kReady = 0, kNotReady = 1;            // CHECK
constexpr char kStopWaiting = 0, kWaitCanceled = 1;  // WAIT, BARRIER; CANCEL_WAIT

/// In bytes, except keys_per_message. The limits of single fields are torch's.
struct StoreLimits {
  std::size_t key = 8 << 10;
  std::size_t value = 8 << 20;
  std::size_t keys_per_message = 128 << 10;
  std::size_t message = 64 << 20;  // a request, an answer, or an appended value
  std::size_t unread = 1 << 20;    // nothing is read from a client with more unread answers
  std::size_t contents = 512 << 20;
  std::size_t buffers = 512 << 20;  // of all connections together
};

struct Request {
  QueryType type = QueryType::kValidate;
  std::vector<std::string> keys;
  std::vector<std::string> values;  // COMPARE_SET: expected, desired
  std::int64_t number = 0;          // PING: nonce; ADD: amount; BARRIER: how many take part
};

class RequestParser {
 public:
  enum class Next { kComplete, kNeedsMoreBytes, kMalformed };

  explicit RequestParser(const StoreLimits& limits = {}) : limits_(limits) {}
  void feed(std::string_view bytes);
  /// Complete: `request` is the next request; VALIDATE is checked and skipped. Malformed is final.
  Next next(Request& request);
  /// Memory held for incomplete requests.
  std::size_t buffered() const { return left() + taken_; }

 private:
  enum class Take { kDone, kNeedsMoreBytes, kTooLong };

  bool begin();
  void advance();
  Take take_field();
  Take take_text(std::vector<std::string>& into, std::size_t limit);
  Take take_count();
  template <typename Integer>
  Take take_number();
  template <typename Integer>
  bool peek(Integer& value) const;
  std::size_t left() const { return input_.size() - at_; }

  StoreLimits limits_;
  std::string input_;
  std::size_t at_ = 0;  // offset in input_ of what is not parsed yet
  bool validated_ = false;
  bool begun_ = false;
  bool broken_ = false;
  Request request_;
  std::string_view fields_;   // of request_
  std::size_t field_ = 0;     // the next of them
  std::uint64_t rounds_ = 0;  // repetitions of the repeated fields that are left
  std::size_t taken_ = 0;     // by request_
};

/// Appends a number as it is on the wire.
template <typename Integer>
void put_number(std::string& out, Integer value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}
void put_text(std::string& out, std::string_view text);

}  // namespace ddp::launch
