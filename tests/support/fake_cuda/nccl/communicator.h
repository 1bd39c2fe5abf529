// A communicator over shared memory: each rank has a buffer that all others read, and a counter of
// the barriers that it has reached.
#pragma once

#include <nccl.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace fake_nccl {

inline constexpr int kMaxRanks = 64;
inline constexpr std::size_t kChunk = 1 << 18;  ///< Bytes that move in one piece.

/// Thrown where an operation waits when its communicator is aborted.
struct Aborted {};

enum class Kind { kAllReduce, kReduce, kBroadcast, kAllGather, kReduceScatter, kSend, kRecv };

/// One call of NCCL: what it does, on which memory.
struct Call {
  Kind kind;
  const char* in = nullptr;
  char* out = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclFloat32;
  int op = 0;
  int peer = 0;  ///< Root of a rooted collective, or the other end.
  double factor = 1.0;
};

/// In shared memory.
struct Shared;

/// Whether a test has created the file FAKENCCL_BROKEN_FILE, and this rank has such faults: NCCL
/// then reports an error, and its kernels wait forever.
bool network_is_broken();

}  // namespace fake_nccl

/// NCCL's handle. An aborted or destroyed one keeps its object: torch's watchdog may still ask it.
struct ncclComm {
  ncclComm(std::string name, int size, int rank);

  /// Waits until all ranks are here. Returns ncclInternalError when it is aborted meanwhile.
  ncclResult_t join();
  /// Meets all ranks and makes the communicator of those with the same color, in the order of their
  /// keys; null for a negative color.
  ncclResult_t split(int color, int key, ncclComm** out);
  /// Does what one group of calls on one stream asks for; on a stream's worker.
  void run(const std::vector<fake_nccl::Call>& calls);
  /// Waits for what runs, and leaves the shared memory.
  void leave();

  const std::string name;
  const int size;
  const int rank;
  int device = 0;
  std::atomic<bool> aborted{false};
  std::atomic<ncclResult_t> state{ncclSuccess};
  std::atomic<int> running{0};
  std::thread joining;  ///< For a communicator that is made without blocking.

 private:
  template <typename Done>
  void wait_until(Done done);
  void barrier();
  void collective(const fake_nccl::Call& call);
  void piece(const fake_nccl::Call& call, std::size_t at, std::size_t count, int owner);
  void point_to_point(const std::vector<fake_nccl::Call>& calls);
  std::vector<const char*> chunks() const;
  char* chunk_of(int of) const;
  char* chunk_between(int from, int to) const;
  std::size_t shared_bytes() const;

  fake_nccl::Shared* shared_ = nullptr;
  std::mutex order_;  // one operation of a communicator at a time
  uint64_t barriers_ = 0;
  int splits_ = 0;
};
