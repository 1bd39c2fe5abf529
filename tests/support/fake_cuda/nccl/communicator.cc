#include "tests/support/fake_cuda/nccl/communicator.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

#include "tests/support/fake_cuda/fake_cuda.h"
#include "tests/support/fake_cuda/nccl/reduce.h"

using fake_nccl::Aborted;
using fake_nccl::Call;
using fake_nccl::kChunk;
using fake_nccl::Kind;

namespace fake_nccl {

struct alignas(64) Slot {
  std::atomic<uint64_t> barriers;  // reached by this rank
  std::atomic<int> joined;
  int color;
  int key;
};

/// Pieces that went from one rank to another; equal when the chunk between them is free.
struct Mail {
  std::atomic<uint64_t> sent;
  std::atomic<uint64_t> taken;
};

struct Shared {
  Slot slot[kMaxRanks];
  Mail mail[kMaxRanks][kMaxRanks];
  // Behind it: a chunk for each rank, then one for each pair.
};

bool network_is_broken() {
  static const char* const file = std::getenv("FAKENCCL_BROKEN_FILE");
  static const bool faulty = file != nullptr && fakecuda_is_faulty_rank() != 0;
  return faulty && ::access(file, F_OK) == 0;
}

}  // namespace fake_nccl

ncclComm::ncclComm(std::string its_name, int its_size, int its_rank)
    : name(std::move(its_name)), size(its_size), rank(its_rank) {}

std::size_t ncclComm::shared_bytes() const {
  const auto ranks = static_cast<std::size_t>(size);
  return sizeof(fake_nccl::Shared) + kChunk * (ranks + ranks * ranks);
}

char* ncclComm::chunk_of(int of) const {
  return reinterpret_cast<char*>(shared_ + 1) + kChunk * static_cast<std::size_t>(of);
}

char* ncclComm::chunk_between(int from, int to) const { return chunk_of(size + from * size + to); }

std::vector<const char*> ncclComm::chunks() const {
  std::vector<const char*> all;
  for (int r = 0; r < size; ++r) all.push_back(chunk_of(r));
  return all;
}

// A peer in another process: nothing wakes this one, so it looks again and again, ever more slowly.
template <typename Done>
void ncclComm::wait_until(Done done) {
  for (int round = 0; fake_nccl::network_is_broken() || !done(); ++round) {
    if (aborted) throw Aborted{};
    if (round < 200) {
      std::this_thread::yield();
    } else {
      ::usleep(round < 2000 ? 50 : 500);
    }
  }
}

void ncclComm::barrier() {
  shared_->slot[rank].barriers = ++barriers_;
  for (int r = 0; r < size; ++r) wait_until([&] { return shared_->slot[r].barriers >= barriers_; });
}

ncclResult_t ncclComm::join() {
  const int file = ::shm_open(name.c_str(), O_CREAT | O_RDWR, 0600);
  if (file < 0) return ncclSystemError;
  void* memory = MAP_FAILED;
  if (::ftruncate(file, static_cast<off_t>(shared_bytes())) == 0)
    memory = ::mmap(nullptr, shared_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                    file, 0);
  ::close(file);
  if (memory == MAP_FAILED) return ncclSystemError;
  shared_ = static_cast<fake_nccl::Shared*>(memory);
  shared_->slot[rank].joined = 1;
  try {
    for (int r = 0; r < size; ++r) wait_until([&] { return shared_->slot[r].joined != 0; });
    barrier();
  } catch (const Aborted&) {
    return ncclInternalError;
  }
  if (rank == 0) ::shm_unlink(name.c_str());  // all have mapped it: nothing stays behind
  return ncclSuccess;
}

ncclResult_t ncclComm::split(int color, int key, ncclComm** out) {
  *out = nullptr;
  std::vector<std::pair<int, int>> members;  // key, rank
  try {
    shared_->slot[rank].color = color;
    shared_->slot[rank].key = key;
    barrier();
    for (int r = 0; r < size; ++r) {
      if (shared_->slot[r].color == color) members.emplace_back(shared_->slot[r].key, r);
    }
    barrier();
  } catch (const Aborted&) {
    return ncclInternalError;
  }
  const int index = splits_++;
  if (color < 0) return ncclSuccess;
  std::sort(members.begin(), members.end());
  const auto me = std::find_if(members.begin(), members.end(),
                               [this](const auto& member) { return member.second == rank; });
  *out = new ncclComm(name + "-" + std::to_string(index) + "-" + std::to_string(color),
                      static_cast<int>(members.size()), static_cast<int>(me - members.begin()));
  (*out)->device = device;
  return (*out)->join();
}

/// `count` elements from `at` on: all ranks put theirs where the others see them, then take.
void ncclComm::piece(const Call& call, std::size_t at, std::size_t count, int owner) {
  const std::size_t element = fake_nccl::bytes_of(call.type);
  const std::size_t bytes = count * element;
  const std::size_t from = static_cast<std::size_t>(owner) * call.count + at;
  if (call.kind != Kind::kBroadcast || rank == call.peer)
    std::memcpy(chunk_of(rank), call.in + from * element, bytes);
  barrier();
  char* const here = call.out + at * element;
  switch (call.kind) {
    case Kind::kBroadcast:
      std::memcpy(here, chunk_of(call.peer), bytes);
      break;
    case Kind::kAllGather:
      for (int r = 0; r < size; ++r)
        std::memcpy(here + static_cast<std::size_t>(r) * call.count * element, chunk_of(r), bytes);
      break;
    case Kind::kAllReduce:
      fake_nccl::reduce(here, chunks(), count, call.type, call.op, call.factor);
      break;
    case Kind::kReduce:
      if (rank == call.peer)
        fake_nccl::reduce(here, chunks(), count, call.type, call.op, call.factor);
      break;
    case Kind::kReduceScatter:
      if (rank == owner) fake_nccl::reduce(here, chunks(), count, call.type, call.op, call.factor);
      break;
    case Kind::kSend:
    case Kind::kRecv:
      break;
  }
  barrier();
}

void ncclComm::collective(const Call& call) {
  const std::size_t step = kChunk / fake_nccl::bytes_of(call.type);
  const int owners = call.kind == Kind::kReduceScatter ? size : 1;
  for (int owner = 0; owner < owners; ++owner) {
    for (std::size_t at = 0; at < call.count; at += step)
      piece(call, at, std::min(step, call.count - at), owner);
  }
}

/// All sends and receives of a group make progress together; those to or from one peer in order.
void ncclComm::point_to_point(const std::vector<Call>& calls) {
  struct Lane {
    std::vector<const Call*> calls;
    std::size_t next = 0;
    std::size_t moved = 0;  // bytes of calls[next]
  };
  std::map<std::pair<int, Kind>, Lane> lanes;
  for (const auto& call : calls) lanes[{call.peer, call.kind}].calls.push_back(&call);
  const auto advance = [this](int peer, Kind kind, Lane& lane) {
    const Call& call = *lane.calls[lane.next];
    const bool send = kind == Kind::kSend;
    auto& mail = send ? shared_->mail[rank][peer] : shared_->mail[peer][rank];
    if ((mail.sent == mail.taken) != send) return false;
    const std::size_t total = call.count * fake_nccl::bytes_of(call.type);
    const std::size_t bytes = std::min(kChunk, total - lane.moved);
    if (send) {
      std::memcpy(chunk_between(rank, peer), call.in + lane.moved, bytes);
      ++mail.sent;
    } else {
      std::memcpy(call.out + lane.moved, chunk_between(peer, rank), bytes);
      ++mail.taken;
    }
    lane.moved += bytes;
    if (lane.moved >= total) {
      ++lane.next;
      lane.moved = 0;
    }
    return true;
  };
  wait_until([&] {
    bool done = true;
    for (auto& [end, lane] : lanes) {
      while (lane.next < lane.calls.size() && advance(end.first, end.second, lane)) continue;
      done = done && lane.next == lane.calls.size();
    }
    return done;
  });
}

void ncclComm::run(const std::vector<Call>& calls) {
  try {
    if (aborted) throw Aborted{};
    std::unique_lock lock(order_, std::defer_lock);
    wait_until([&] { return lock.try_lock(); });
    std::vector<Call> ends;
    for (const auto& call : calls) {
      if (call.kind == Kind::kSend || call.kind == Kind::kRecv) {
        ends.push_back(call);
      } else {
        collective(call);
      }
    }
    if (!ends.empty()) point_to_point(ends);
  } catch (const Aborted&) {  // the stream continues, as it does after ncclCommAbort()
  }
  --running;
}

void ncclComm::leave() {
  if (joining.joinable()) joining.join();
  while (running > 0) ::usleep(200);
  if (shared_ != nullptr) ::munmap(std::exchange(shared_, nullptr), shared_bytes());
}
