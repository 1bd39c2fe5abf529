#include "trainer/parallel/collectives/shared_reduce.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ddp::train {
namespace {

using Clock = std::chrono::steady_clock;
using Operation = SharedReduce::Operation;

constexpr std::size_t kLine = 64;
constexpr uint64_t kSlots = 8;
// A rank gives so many chunks before it needs those of the others, so that one that is slower for a
// moment holds up nobody.
constexpr uint64_t kChunksAhead = 3;
// Below, each rank of three and more sums everything up: less waiting for more adding.
constexpr std::size_t kDirectBytes = 8192;
constexpr int kSpins = 200;  // about 10 us

void pause_briefly() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Not private to the process: the words are in memory of several.
void wait_on(std::atomic<uint32_t>& word, uint32_t seen, Clock::duration at_most) {
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(at_most).count();
  const timespec time{ns / 1'000'000'000, ns % 1'000'000'000};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &time, nullptr, 0);
}

void ring(std::atomic<uint32_t>& bell) {
  bell.fetch_add(1);
  ::syscall(SYS_futex, &bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

std::size_t length_of(const SharedReduce::Row& row) {
  std::size_t bytes = 0;
  for (const auto& piece : row) bytes += piece.bytes;
  return bytes;
}

/// Calls `visit(memory, offset from begin, bytes)` for what a row has in [begin, begin + bytes).
template <class Visit>
void for_each_part(const SharedReduce::Row& row, std::size_t begin, std::size_t bytes,
                   const Visit& visit) {
  std::size_t at = 0;
  for (const auto& piece : row) {
    const std::size_t from = std::max(begin, at);
    const std::size_t to = std::min(begin + bytes, at + piece.bytes);
    if (from < to) visit(piece.data + (from - at), from - begin, to - from);
    at += piece.bytes;
  }
}

/// In the order of Operation.
constexpr const char* kNames[] = {"the sum of ", "the maximum of ", "a reduce-scatter of rows of ",
                                  "an all-gather of rows of "};

}  // namespace

/// What one call is for. Ranks compare it before they take each other's elements.
struct SharedReduce::Call {
  uint64_t count;
  Type type;
  Operation operation;

  bool operator==(const Call&) const = default;
};

/// Counts are of chunks, from the first one of all calls on. Each is written by the owner only.
struct SharedReduce::Part {
  alignas(kLine) std::atomic<uint64_t> given;  ///< Copied to the part.
  std::atomic<uint64_t> summed;                ///< The owner's share is, and is in the part.
  std::atomic<uint64_t> done;                  ///< No other part of that chunk is read any more.
  std::atomic<bool> left;                      ///< The owner will give nothing any more.
  alignas(kLine) std::atomic<uint32_t> bell;   ///< Changes when a sleeper has to look again.
  std::atomic<uint32_t> sleepers;              ///< Ranks that wait for the owner.
  alignas(kLine) std::array<Call, kSlots> calls;
  alignas(4096) std::array<std::array<std::byte, kChunkOfMore>, kSlots> slots;
};

/// While it lives, the owner of the part rings.
class SharedReduce::Sleeper {
 public:
  explicit Sleeper(Part& part) : part_(part) { part_.sleepers.fetch_add(1); }
  ~Sleeper() { part_.sleepers.fetch_sub(1); }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

 private:
  Part& part_;
};

SharedReduce::SharedReduce(int rank, const std::vector<std::byte*>& parts, bool share_cores)
    : rank_(rank),
      size_(static_cast<int>(parts.size())),
      chunk_(parts.size() == 2 ? kChunkOfTwo : kChunkOfMore),
      spins_(share_cores ? 0 : kSpins),
      lost_(new std::atomic<bool>[parts.size()]()),
      call_(new Call()) {
  static_assert(sizeof(Part) <= kPartBytes);
  static_assert(std::atomic<uint64_t>::is_always_lock_free &&
                std::atomic<uint32_t>::is_always_lock_free);
  for (std::byte* part : parts) parts_.push_back(reinterpret_cast<Part*>(part));
}

SharedReduce::~SharedReduce() {
  Part& own = *parts_[static_cast<std::size_t>(rank_)];
  own.left = true;
  ring(own.bell);
}

// The bell rings in the lost rank's own part, where those who wait for it sleep.
void SharedReduce::lose(int rank) {
  lost_[static_cast<std::size_t>(rank)] = true;
  ring(parts_[static_cast<std::size_t>(rank)]->bell);
}

template <class Work>
void SharedReduce::perform(const Call& call, Time timeout, const Work& work) {
  if (failure_) std::rethrow_exception(failure_);
  *call_ = call;
  timeout_ = timeout;
  deadline_ = Clock::now() + timeout;
  try {
    work();
  } catch (...) {
    failure_ = std::current_exception();
    parts_[static_cast<std::size_t>(rank_)]->left = true;
    lose(rank_);
    throw;
  }
}

void SharedReduce::run(void* data, std::size_t count, Type type, Operation operation,
                       Time timeout) {
  auto* const bytes = static_cast<std::byte*>(data);
  const std::size_t length = count * bytes_of(type);
  perform({count, type, operation}, timeout, [&] {
    if (size_ == 2 || length <= kDirectBytes)
      reduce_directly(bytes, length);
    else
      reduce_in_shares(bytes, length);
  });
}

void SharedReduce::scatter_sums(const void* table, void* own, std::size_t count, Type type,
                                bool add, Time timeout) {
  perform({count, type, Operation::kScatter}, timeout, [&] {
    scatter_in_pieces(static_cast<const std::byte*>(table), static_cast<std::byte*>(own),
                      count * bytes_of(type), add);
  });
}

void SharedReduce::gather_rows(void* table, std::size_t count, Type type, Time timeout) {
  const std::size_t length = count * bytes_of(type);
  std::vector<Row> rows;
  for (auto* row = static_cast<std::byte*>(table); std::cmp_less(rows.size(), size_); row += length)
    rows.push_back(Row{{row, length}});
  perform({count, type, Operation::kGather}, timeout, [&] { gather(rows); });
}

void SharedReduce::gather_pieces(const std::vector<Row>& rows, Time timeout) {
  std::size_t all = 0;
  for (const Row& row : rows) all += length_of(row);
  perform({all, Type::kUint8, Operation::kGather}, timeout, [&] { gather(rows); });
}

// A slot holds a piece of each rank's row.
std::size_t SharedReduce::piece_of_row() const {
  return chunk_ / static_cast<std::size_t>(size_) / kLine * kLine;
}

// `first` gives a chunk to the others, some chunks before `then` needs what they have given.
template <class First, class Then>
void SharedReduce::in_chunks(std::size_t bytes, std::size_t chunk_bytes, const First& first,
                             const Then& then) {
  // The call itself is compared even where there are no elements.
  const std::size_t chunks = std::max<std::size_t>(1, (bytes + chunk_bytes - 1) / chunk_bytes);
  const auto chunk = [&](std::size_t i) {
    const std::size_t at = i * chunk_bytes;
    return Chunk{at, std::min(chunk_bytes, bytes - at), next_chunk_ + i};
  };
  std::size_t given = 0;
  for (std::size_t i = 0; i < chunks; ++i) {
    for (; given < std::min(chunks, i + 1 + kChunksAhead); ++given) first(chunk(given));
    then(chunk(i));
    publish(&Part::done, next_chunk_ + i + 1);
  }
  next_chunk_ += chunks;
}

void SharedReduce::scatter_in_pieces(const std::byte* table, std::byte* own, std::size_t row,
                                     bool add) {
  const std::size_t piece = piece_of_row();
  const auto here = static_cast<std::size_t>(rank_);
  in_chunks(
      row, piece,
      [&](const Chunk& c) {
        wait_for_slot(c.number);
        for (std::size_t r = 0; r < parts_.size(); ++r) {
          if (r != here && c.bytes > 0)
            std::memcpy(slot(rank_, c.number) + r * piece, table + r * row + c.at, c.bytes);
        }
        publish(&Part::given, c.number + 1);
      },
      [&](const Chunk& c) {
        sum_up(table + here * row + c.at, own + c.at, c.bytes, c.number, here * piece, add);
      });
}

void SharedReduce::gather(const std::vector<Row>& rows) {
  std::size_t longest = 0;
  for (const Row& row : rows) longest = std::max(longest, length_of(row));
  const auto row_of = [&](int rank) -> const Row& { return rows[static_cast<std::size_t>(rank)]; };
  in_chunks(
      longest, chunk_,
      [&](const Chunk& c) {
        wait_for_slot(c.number);
        for_each_part(row_of(rank_), c.at, c.bytes, [&](auto* part, std::size_t at, std::size_t n) {
          std::memcpy(slot(rank_, c.number) + at, part, n);
        });
        publish(&Part::given, c.number + 1);
      },
      [&](const Chunk& c) {
        for (int step = 1; step < size_; ++step) {
          const int rank = (rank_ + step) % size_;
          wait_for(rank, &Part::given, c.number + 1);
          check_call(rank, c.number);
          for_each_part(row_of(rank), c.at, c.bytes,
                        [&](auto* part, std::size_t at, std::size_t n) {
                          std::memcpy(part, slot(rank, c.number) + at, n);
                        });
        }
      });
}

// Each rank sums up all parts.
void SharedReduce::reduce_directly(std::byte* data, std::size_t bytes) {
  in_chunks(
      bytes, chunk_, [&](const Chunk& c) { give(data + c.at, c.bytes, 0, 0, c.number); },
      [&](const Chunk& c) { sum_up(data + c.at, data + c.at, c.bytes, c.number, 0, false); });
}

// Each rank sums up its share of a chunk, one chunk ahead, and takes the others' sums.
void SharedReduce::reduce_in_shares(std::byte* data, std::size_t bytes) {
  std::size_t summed = 0;  // bytes
  in_chunks(
      bytes, chunk_,
      [&](const Chunk& c) {
        give(data + c.at, c.bytes, share_begin(c.bytes, rank_), share_begin(c.bytes, rank_ + 1),
             c.number);
      },
      [&](const Chunk& c) {
        for (; summed < std::min(bytes, c.at + 2 * chunk_); summed += chunk_) {
          sum_share(data + summed, std::min(chunk_, bytes - summed),
                    c.number + (summed - c.at) / chunk_);
        }
        collect_shares(data + c.at, c.bytes, c.number);
      });
}

// With these kChunksAhead and kSlots the slot is free already; the look at `done` leaves both free
// to change.
void SharedReduce::wait_for_slot(uint64_t chunk) {
  for (int rank = 0; rank < size_; ++rank) {
    if (rank != rank_ && chunk >= kSlots) wait_for(rank, &Part::done, chunk - kSlots + 1);
  }
  parts_[static_cast<std::size_t>(rank_)]->calls[chunk % kSlots] = *call_;
}

// But for what nobody else needs, from `kept` to `kept_end`.
void SharedReduce::give(const std::byte* data, std::size_t bytes, std::size_t kept,
                        std::size_t kept_end, uint64_t chunk) {
  wait_for_slot(chunk);
  std::byte* const place = slot(rank_, chunk);
  if (kept > 0) std::memcpy(place, data, kept);
  if (bytes > kept_end) std::memcpy(place + kept_end, data + kept_end, bytes - kept_end);
  publish(&Part::given, chunk + 1);
}

// `own`: this rank's elements; the others' are at `offset` of their slots. With `add`, `out` is the
// first term.
void SharedReduce::sum_up(const std::byte* own, std::byte* out, std::size_t bytes, uint64_t chunk,
                          std::size_t offset, bool add) {
  sources_.clear();
  if (add) sources_.push_back(out);
  for (int rank = 0; rank < size_; ++rank) {
    if (rank != rank_) {
      wait_for(rank, &Part::given, chunk + 1);
      check_call(rank, chunk);
    }
    sources_.push_back(rank == rank_ ? own : slot(rank, chunk) + offset);
  }
  combine_elements(call_->type, call_->operation == Operation::kMax, out, sources_, bytes);
}

void SharedReduce::sum_share(std::byte* data, std::size_t bytes, uint64_t chunk) {
  const std::size_t begin = share_begin(bytes, rank_);
  const std::size_t size = share_begin(bytes, rank_ + 1) - begin;
  sum_up(data + begin, data + begin, size, chunk, begin, false);
  // Nobody else reads this share of what this rank has given.
  if (size > 0) std::memcpy(slot(rank_, chunk) + begin, data + begin, size);
  publish(&Part::summed, chunk + 1);
}

void SharedReduce::collect_shares(std::byte* data, std::size_t bytes, uint64_t chunk) {
  for (int step = 1; step < size_; ++step) {
    const int rank = (rank_ + step) % size_;
    wait_for(rank, &Part::summed, chunk + 1);
    const std::size_t begin = share_begin(bytes, rank);
    const std::size_t size = share_begin(bytes, rank + 1) - begin;
    if (size > 0) std::memcpy(data + begin, slot(rank, chunk) + begin, size);
  }
}

// Whole cache lines, so that no two ranks write to the same one.
std::size_t SharedReduce::share_begin(std::size_t bytes, int rank) const {
  const std::size_t lines = (bytes + kLine - 1) / kLine;
  const auto ranks = static_cast<std::size_t>(size_);
  return std::min(bytes, lines * static_cast<std::size_t>(rank) / ranks * kLine);
}

std::byte* SharedReduce::slot(int rank, uint64_t chunk) const {
  return parts_[static_cast<std::size_t>(rank)]->slots[chunk % kSlots].data();
}

void SharedReduce::check_call(int rank, uint64_t chunk) const {
  const Call& other = parts_[static_cast<std::size_t>(rank)]->calls[chunk % kSlots];
  if (other == *call_) return;
  throw std::runtime_error("the ranks reduce different things: rank " + std::to_string(rank_) +
                           " " + text_of(*call_) + ", rank " + std::to_string(rank) + " " +
                           text_of(other));
}

std::string SharedReduce::text_of(const Call& call) const {
  return kNames[static_cast<std::size_t>(call.operation)] + std::to_string(call.count) + " " +
         name_of(call.type);
}

bool SharedReduce::reached(int rank, Count count, uint64_t value) const {
  return (parts_[static_cast<std::size_t>(rank)]->*count).load(std::memory_order_acquire) >= value;
}

void SharedReduce::wait_for(int rank, Count count, uint64_t value) {
  for (int i = 0; i < spins_; ++i) {
    if (reached(rank, count, value)) return;
    pause_briefly();
  }
  if (!reached(rank, count, value)) sleep_until(rank, count, value);
}

void SharedReduce::sleep_until(int rank, Count count, uint64_t value) {
  Part& part = *parts_[static_cast<std::size_t>(rank)];
  const Sleeper sleeper(part);
  while (true) {
    const uint32_t seen = part.bell;
    const bool gone = lost_[static_cast<std::size_t>(rank)] || part.left;
    // After the look at `gone`: what it gave before it went counts. Who was not woken timed out.
    if ((part.*count).load() >= value) return;
    const auto left = deadline_ - Clock::now();
    if (left <= Clock::duration::zero()) {
      throw std::runtime_error("Timed out waiting " + std::to_string(timeout_.count()) +
                               "ms for rank " + std::to_string(rank) + " in " + text_of(*call_));
    }
    if (gone) {
      throw PeerLost("Connection closed by peer: rank " + std::to_string(rank) +
                     " has ended before it gave its part of " + text_of(*call_));
    }
    wait_on(part.bell, seen, left);
  }
}

// Ordered with the sleeper's own two steps: either it sees the count, or it is seen here.
void SharedReduce::publish(Count count, uint64_t value) {
  Part& own = *parts_[static_cast<std::size_t>(rank_)];
  (own.*count).store(value);
  if (own.sleepers.load() == 0) return;
  ring(own.bell);
}

}  // namespace ddp::train
