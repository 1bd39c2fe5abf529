// Events: places in a stream's order that the host or other streams wait for.
#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>

#include "tests/support/fake_cuda/runtime/errors.h"
#include "tests/support/fake_cuda/runtime/ledger.h"
#include "tests/support/fake_cuda/runtime/streams.h"

namespace {

using Nanoseconds = std::atomic<int64_t>;

struct Event {
  explicit Event(unsigned flags) : timed((flags & cudaEventDisableTiming) == 0) {}

  const bool timed;
  std::mutex mutex;
  fake_cuda::Ticket place;              // no stream: never recorded
  fake_cuda::Graph* capture = nullptr;  // recorded by a stream that captured
  std::shared_ptr<Nanoseconds> time = std::make_shared<Nanoseconds>(0);
};

Event& event_of(cudaEvent_t handle) { return *reinterpret_cast<Event*>(handle); }

int64_t nanoseconds() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

/// The place that the event stands for; no stream when it has not been recorded.
fake_cuda::Ticket place_of(cudaEvent_t handle) {
  Event& event = event_of(handle);
  const std::lock_guard lock(event.mutex);
  return event.place;
}

}  // namespace

extern "C" {

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned flags) {
  *out = reinterpret_cast<cudaEvent_t>(new Event(flags));
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* out) { return cudaEventCreateWithFlags(out, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  delete &event_of(handle);
  return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t handle, cudaStream_t stream_handle, unsigned) {
  FAKE_CUDA_RETURN_IF_STICKY();
  fake_cuda::count("event_record");
  Event& event = event_of(handle);
  fake_cuda::Stream& stream = fake_cuda::stream_of(stream_handle);
  const std::lock_guard lock(event.mutex);
  event.capture = stream.capture;
  if (event.capture != nullptr) return cudaSuccess;
  if (!event.timed) {
    event.place = stream.now();
    return cudaSuccess;
  }
  event.time = std::make_shared<Nanoseconds>(0);
  event.place = stream.push([time = event.time] { *time = nanoseconds(); });
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream) {
  return cudaEventRecordWithFlags(handle, stream, 0);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream_handle, cudaEvent_t handle, unsigned) {
  FAKE_CUDA_RETURN_IF_STICKY();
  fake_cuda::count("stream_wait_event");
  Event& event = event_of(handle);
  fake_cuda::Stream& stream = fake_cuda::stream_of(stream_handle);
  const std::lock_guard lock(event.mutex);
  if (event.capture != nullptr) {  // the stream joins the capture
    const bool legacy = stream_handle == nullptr || stream_handle == cudaStreamLegacy;
    if (legacy) return fake_cuda::failed(cudaErrorStreamCaptureImplicit);
    stream.capture = event.capture;
    event.capture->streams.insert(&stream);
    return cudaSuccess;
  }
  const fake_cuda::Ticket place = event.place;
  if (place.stream == nullptr || place.stream == &stream || place.reached()) return cudaSuccess;
  fake_cuda::submit(stream_handle, [place] { place.wait(); });
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  fake_cuda::count("query");
  FAKE_CUDA_RETURN_IF_STICKY();
  const fake_cuda::Ticket place = place_of(handle);
  if (place.stream == nullptr || place.reached()) return cudaSuccess;
  return fake_cuda::failed(cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  fake_cuda::count_host_sync("cudaEventSynchronize");
  const fake_cuda::Ticket place = place_of(handle);
  if (place.stream != nullptr) place.wait();
  return fake_cuda::sticky();
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  const int64_t begin = event_of(from).time->load();
  const int64_t end = event_of(to).time->load();
  if (begin == 0 || end == 0) return fake_cuda::failed(cudaErrorNotReady);
  *milliseconds = static_cast<float>(end - begin) / 1e6F;
  return cudaSuccess;
}
}
