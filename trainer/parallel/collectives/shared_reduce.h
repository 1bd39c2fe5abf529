// All-reduce between ranks that share memory: each rank writes to its own part and reads all. Does
// not use LibTorch.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "trainer/parallel/collectives/element_sums.h"

namespace ddp::train {

/// A rank left before the others were done with it; its own message has the reason.
class PeerLost : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class SharedReduce {
 public:
  using Type = ElementType;
  enum class Operation : uint8_t { kSum, kMax, kScatter, kGather };
  using Time = std::chrono::milliseconds;

  /// Size of one rank's part, which is zero-initialized and aligned to a cache line.
  static constexpr std::size_t kPartBytes = 2112UL * 1024;
  /// Elements are exchanged in chunks of at most so many bytes. Two ranks usually have a core each,
  /// whose cache holds these chunks; more ranks have to take turns on cores, and larger chunks mean
  /// fewer turns.
  static constexpr std::size_t kChunkOfTwo = 64UL * 1024;
  static constexpr std::size_t kChunkOfMore = 256UL * 1024;

  /// `parts`: in rank order; must outlive this object. `share_cores`: there are fewer cores than
  /// ranks, so a rank must not spin for another.
  SharedReduce(int rank, const std::vector<std::byte*>& parts, bool share_cores);
  /// Ranks that still wait for this one get PeerLost.
  ~SharedReduce();
  SharedReduce(const SharedReduce&) = delete;
  SharedReduce& operator=(const SharedReduce&) = delete;

  /// `operation`: kSum or kMax. In place: the sum (or maximum) of all ranks' elements, taken in
  /// rank order, hence bitwise identical on all ranks and in every run. All ranks must make the
  /// same calls in the same order. Throws PeerLost, or runtime_error after `timeout` or if another
  /// rank makes a different call; `data` is then undefined, and every later call throws the same.
  void run(void* data, std::size_t count, Type type, Operation operation, Time timeout);
  /// `own` (`count` elements) becomes the sum, in rank order, of this rank's row in every rank's
  /// `table` (one row of `count` elements per rank); with `add`, the sums start from the contents
  /// of `own`. Otherwise as run().
  void scatter_sums(const void* table, void* own, std::size_t count, Type type, bool add,
                    Time timeout);
  /// Copies the other ranks' rows into `table`, laid out as above with this rank's row filled in.
  void gather_rows(void* table, std::size_t count, Type type, Time timeout);
  /// A contiguous part of a row.
  struct Piece {
    std::byte* data;
    std::size_t bytes;
  };
  using Row = std::vector<Piece>;
  /// The same for rows in pieces, whose lengths are the same on all ranks. A rank's row may
  /// be longer than another's.
  void gather_pieces(const std::vector<Row>& rows, Time timeout);
  /// Marks `rank`, whose process has ended, as lost. May be called from any thread.
  void lose(int rank);

 private:
  struct Part;
  struct Call;
  class Sleeper;

  template <class Work>
  void perform(const Call& call, Time timeout, const Work& work);
  struct Chunk {
    std::size_t at;  ///< Byte offset in the data, or in a row.
    std::size_t bytes;
    uint64_t number;  ///< Counts the chunks of all calls.
  };
  template <class First, class Then>
  void in_chunks(std::size_t bytes, std::size_t chunk_bytes, const First& first, const Then& then);
  void wait_for_slot(uint64_t chunk);
  void scatter_in_pieces(const std::byte* table, std::byte* own, std::size_t row, bool add);
  void gather(const std::vector<Row>& rows);
  std::size_t piece_of_row() const;
  void reduce_directly(std::byte* data, std::size_t bytes);
  void reduce_in_shares(std::byte* data, std::size_t bytes);
  void give(const std::byte* data, std::size_t bytes, std::size_t kept, std::size_t kept_end,
            uint64_t chunk);
  void sum_up(const std::byte* own, std::byte* out, std::size_t bytes, uint64_t chunk,
              std::size_t offset, bool add);
  void sum_share(std::byte* data, std::size_t bytes, uint64_t chunk);
  void collect_shares(std::byte* data, std::size_t bytes, uint64_t chunk);
  std::size_t share_begin(std::size_t bytes, int rank) const;
  std::byte* slot(int rank, uint64_t chunk) const;
  void check_call(int rank, uint64_t chunk) const;

  using Count = std::atomic<uint64_t> Part::*;
  bool reached(int rank, Count count, uint64_t value) const;
  void wait_for(int rank, Count count, uint64_t value);
  void sleep_until(int rank, Count count, uint64_t value);
  void publish(Count count, uint64_t value);
  std::string text_of(const Call& call) const;

  int rank_;
  int size_;
  std::size_t chunk_;
  int spins_;
  std::vector<Part*> parts_;
  std::vector<const std::byte*> sources_;
  std::unique_ptr<std::atomic<bool>[]> lost_;
  uint64_t next_chunk_ = 0;
  std::exception_ptr failure_;
  std::unique_ptr<Call> call_;
  std::chrono::steady_clock::time_point deadline_;
  Time timeout_{};
};

}  // namespace ddp::train
