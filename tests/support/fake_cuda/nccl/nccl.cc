// Fake libnccl.so.2: NCCL's interface over communicator.h. As in NCCL, a call is queued on its
// stream and the host continues; a peer that never comes is waited for until ncclCommAbort().
#include <nccl.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/fake_cuda/fake_cuda.h"
#include "tests/support/fake_cuda/nccl/communicator.h"
#include "tests/support/fake_cuda/nccl/reduce.h"

#include <unistd.h>

#include <cstdlib>

using fake_nccl::Call;
using fake_nccl::Kind;

namespace {

thread_local std::string last_error;

ncclResult_t refused(ncclResult_t result, const char* why) {
  last_error = why;
  return result;
}

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::kAllReduce:
      return "nccl:all_reduce";
    case Kind::kReduce:
      return "nccl:reduce";
    case Kind::kBroadcast:
      return "nccl:broadcast";
    case Kind::kAllGather:
      return "nccl:all_gather";
    case Kind::kReduceScatter:
      return "nccl:reduce_scatter";
    case Kind::kSend:
      return "nccl:send";
    case Kind::kRecv:
      return "nccl:recv";
  }
  return "";
}

/// Factors of the operators that ncclRedOpCreatePreMulSum made.
struct Factors {
  std::mutex mutex;
  std::map<int, double> by_op;
  int next = ncclNumOps;
};
Factors& factors() {
  static auto* value = new Factors;
  return *value;
}

double factor_of(int op) {
  const std::lock_guard lock(factors().mutex);
  const auto at = factors().by_op.find(op);
  return at == factors().by_op.end() ? 1.0 : at->second;
}

/// Where a call runs.
struct Place {
  ncclComm* comm = nullptr;
  cudaStream_t stream = nullptr;
  bool operator==(const Place&) const = default;
};

// Between ncclGroupStart() and ncclGroupEnd().
thread_local int group_depth = 0;
thread_local std::vector<std::pair<Place, Call>> group;

useconds_t delay_us() {
  const char* text = std::getenv("FAKENCCL_DELAY_US");
  return text == nullptr ? 0 : static_cast<useconds_t>(std::strtoul(text, nullptr, 10));
}

void launch(const Place& place, std::vector<Call> calls) {
  for (const auto& call : calls)
    fakecuda_count(name_of(call.kind), call.count * fake_nccl::bytes_of(call.type));
  ++place.comm->running;
  std::function<void()> work = [comm = place.comm, calls = std::move(calls)] {
    static const useconds_t delay = delay_us();
    if (delay > 0) ::usleep(delay);
    comm->run(calls);
  };
  fakecuda_launch(place.stream, "ncclDevKernel", &work);
}

/// One launch for each communicator and stream of the group, in the order of their first calls.
void launch_group() {
  while (!group.empty()) {
    const Place place = group.front().first;
    std::vector<Call> calls;
    std::vector<std::pair<Place, Call>> rest;
    for (auto& [where, call] : group) {
      if (where == place) {
        calls.push_back(call);
      } else {
        rest.emplace_back(where, call);
      }
    }
    launch(place, std::move(calls));
    group = std::move(rest);
  }
}

ncclResult_t call(ncclComm* comm, cudaStream_t stream, Call what) {
  if (comm == nullptr) return refused(ncclInvalidArgument, "no communicator");
  if (comm->aborted) return refused(ncclInvalidUsage, "the communicator was aborted");
  if (comm->state == ncclInProgress)
    return refused(ncclInvalidUsage, "the communicator is not ready");
  if (group_depth > 0) {
    group.emplace_back(Place{comm, stream}, what);
  } else {
    launch({comm, stream}, {what});
  }
  return ncclSuccess;
}

const char* bytes(const void* memory) { return static_cast<const char*>(memory); }
char* bytes(void* memory) { return static_cast<char*>(memory); }

ncclResult_t start(ncclComm** out, const ncclUniqueId& id, int size, int rank, bool blocking) {
  if (size < 1 || size > fake_nccl::kMaxRanks || rank < 0 || rank >= size)
    return refused(ncclInvalidArgument, "no such rank");
  auto* comm = new ncclComm(id.internal, size, rank);
  cudaGetDevice(&comm->device);
  *out = comm;
  fakecuda_count("nccl:init", 0);
  // A rank that never joins: the test names it, and its peers wait.
  if (std::getenv("FAKENCCL_NEVER_JOIN") != nullptr && fakecuda_is_faulty_rank() != 0) {
    while (!comm->aborted) ::usleep(1000);
    return ncclInternalError;
  }
  if (blocking) {
    comm->state = comm->join();
    return comm->state;
  }
  comm->state = ncclInProgress;
  comm->joining = std::thread([comm] { comm->state = comm->join(); });
  return ncclInProgress;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  const char* other = std::getenv("FAKENCCL_VERSION");
  *version = other != nullptr ? std::atoi(other) : NCCL_VERSION_CODE;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  static const char* const texts[] = {"no error",
                                      "unhandled cuda error",
                                      "unhandled system error",
                                      "internal error",
                                      "invalid argument",
                                      "invalid usage",
                                      "remote process exited or there was a network error",
                                      "NCCL operation in progress"};
  const auto index = static_cast<std::size_t>(result);
  return index < std::size(texts) ? texts[index] : "unknown result code";
}
const char* ncclGetLastError(ncclComm_t) {
  if (fake_nccl::network_is_broken())
    return "socketProgress: Connection closed by remote peer fake-node-2<40123>";
  return last_error.c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::random_device random;
  *id = {};
  std::snprintf(id->internal, sizeof id->internal, "/fakenccl-%d-%08x%08x", ::getpid(), random(),
                random());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* out, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  return start(out, id, size, rank, config == nullptr || config->blocking != 0);
}
ncclResult_t ncclCommInitRank(ncclComm_t* out, int size, ncclUniqueId id, int rank) {
  return start(out, id, size, rank, true);
}
ncclResult_t ncclCommInitRankScalable(ncclComm_t* out, int size, int rank, int, ncclUniqueId* ids,
                                      ncclConfig_t* config) {
  return ncclCommInitRankConfig(out, size, ids[0], rank, config);
}
ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t* out, ncclConfig_t*) {
  return parent->split(color, key, out);
}
ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclSuccess; }
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  fakecuda_count("nccl:destroy", 0);
  comm->leave();
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  fakecuda_count("nccl:abort", 0);
  comm->aborted = true;
  comm->leave();
  return ncclSuccess;
}
ncclResult_t ncclCommRevoke(ncclComm_t comm, int) {
  comm->aborted = true;
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* result) {
  *result = fake_nccl::network_is_broken() ? ncclRemoteError : comm->state.load();
  return ncclSuccess;
}
ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  *count = comm->size;
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  *rank = comm->rank;
  return ncclSuccess;
}
ncclResult_t ncclCommCuDevice(ncclComm_t comm, int* device) {
  *device = comm->device;
  return ncclSuccess;
}
ncclResult_t ncclCommRegister(ncclComm_t, void*, size_t, void** handle) {
  *handle = nullptr;
  return ncclSuccess;
}
ncclResult_t ncclCommDeregister(ncclComm_t, void*) { return ncclSuccess; }
ncclResult_t ncclMemAlloc(void** out, size_t size) {
  return cudaMalloc(out, size) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}
ncclResult_t ncclMemFree(void* memory) {
  return cudaFree(memory) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (--group_depth == 0) launch_group();
  return ncclSuccess;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                      ncclScalarResidence_t, ncclComm_t) {
  const std::lock_guard lock(factors().mutex);
  const int index = factors().next++;
  factors().by_op[index] = fake_nccl::scalar_of(scalar, type);
  *op = static_cast<ncclRedOp_t>(index);
  return ncclSuccess;
}
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t) {
  const std::lock_guard lock(factors().mutex);
  factors().by_op.erase(op);
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return call(comm, stream,
              {Kind::kAllReduce, bytes(in), bytes(out), count, type, op, 0, factor_of(op)});
}
ncclResult_t ncclReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return call(comm, stream,
              {Kind::kReduce, bytes(in), bytes(out), count, type, op, root, factor_of(op)});
}
ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return call(comm, stream, {Kind::kBroadcast, bytes(in), bytes(out), count, type, 0, root, 1.0});
}
ncclResult_t ncclBcast(void* memory, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  return ncclBroadcast(memory, memory, count, type, root, comm, stream);
}
ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return call(comm, stream, {Kind::kAllGather, bytes(in), bytes(out), count, type, 0, 0, 1.0});
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return call(comm, stream,
              {Kind::kReduceScatter, bytes(in), bytes(out), count, type, op, 0, factor_of(op)});
}
ncclResult_t ncclSend(const void* in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return call(comm, stream, {Kind::kSend, bytes(in), nullptr, count, type, 0, peer, 1.0});
}
ncclResult_t ncclRecv(void* out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return call(comm, stream, {Kind::kRecv, nullptr, bytes(out), count, type, 0, peer, 1.0});
}
}
