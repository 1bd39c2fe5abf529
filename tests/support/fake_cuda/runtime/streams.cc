#include "tests/support/fake_cuda/runtime/streams.h"

#include <pthread.h>
#include <unistd.h>

#include <thread>
#include <utility>

#include "tests/support/fake_cuda/fake_cuda.h"
#include "tests/support/fake_cuda/runtime/errors.h"
#include "tests/support/fake_cuda/runtime/ledger.h"
#include "tests/support/fake_cuda/runtime/settings.h"

namespace fake_cuda {
namespace {

thread_local int device_of_thread = 0;

struct Registry {
  std::mutex mutex;
  std::map<int, Stream*> defaults;  // by device
  std::set<Stream*> all;
};

Registry& registry() {
  static auto* value = new Registry;
  return *value;
}

Stream& default_stream(int device) {
  const std::lock_guard lock(registry().mutex);
  Stream*& stream = registry().defaults[device];
  if (stream == nullptr) {
    stream = new Stream(device, 0);
    registry().all.insert(stream);
  }
  return *stream;
}

std::vector<Ticket> tickets_of(int device) {
  std::vector<Ticket> tickets;
  const std::lock_guard lock(registry().mutex);
  for (Stream* stream : registry().all) {
    if (stream->device() == device) tickets.push_back(stream->now());
  }
  return tickets;
}

cudaError_t create(cudaStream_t* out, int priority) {
  FAKE_CUDA_RETURN_IF_STICKY();
  auto* stream = new Stream(current_device(), priority);
  const std::lock_guard lock(registry().mutex);
  registry().all.insert(stream);
  *out = reinterpret_cast<cudaStream_t>(stream);
  return cudaSuccess;
}

}  // namespace

bool Ticket::reached() const {
  const std::lock_guard lock(stream->mutex_);
  return stream->done_ >= number;
}

void Ticket::wait() const {
  std::unique_lock lock(stream->mutex_);
  stream->changed_.wait(lock, [this] { return stream->done_ >= number; });
}

void Stream::run() {
  ::pthread_setname_np(::pthread_self(), "fakecuda");
  set_current_device(device_);
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Work work = std::exchange(queue_.front(), nullptr);
    queue_.pop_front();
    lock.unlock();
    if (settings().delay_us > 0) ::usleep(static_cast<useconds_t>(settings().delay_us));
    work();
    work = nullptr;  // what it holds is freed before the host is notified that it is done
    lock.lock();
    ++done_;
    changed_.notify_all();
  }
}

Ticket Stream::push(Work work) {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(started_, true)) std::thread([this] { run(); }).detach();
  queue_.push_back(std::move(work));
  changed_.notify_all();
  return {this, ++submitted_};
}

Ticket Stream::now() {
  const std::lock_guard lock(mutex_);
  return {this, submitted_};
}

void Stream::stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
}

Stream& stream_of(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy || handle == cudaStreamPerThread)
    return default_stream(current_device());
  return *reinterpret_cast<Stream*>(handle);
}

void submit(cudaStream_t handle, Work work) {
  Stream& stream = stream_of(handle);
  if (stream.capture != nullptr) {
    stream.capture->work.push_back(std::move(work));
  } else {
    stream.push(std::move(work));
  }
}

void wait_for_device(int device) {
  for (const Ticket& ticket : tickets_of(device)) ticket.wait();
}

int current_device() { return device_of_thread; }
void set_current_device(int device) { device_of_thread = device; }

}  // namespace fake_cuda

using fake_cuda::Stream;

extern "C" {

void fakecuda_enqueue(cudaStream_t stream, std::function<void()>* work) {
  fake_cuda::submit(stream, std::move(*work));
}

void fakecuda_wait(cudaStream_t stream, const char* why) {
  fake_cuda::count_host_sync(why);
  fake_cuda::stream_of(stream).now().wait();
}

cudaError_t cudaStreamCreate(cudaStream_t* out) { return fake_cuda::create(out, 0); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned) {
  return fake_cuda::create(out, 0);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* out, unsigned, int priority) {
  return fake_cuda::create(out, priority);
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  *priority = fake_cuda::stream_of(handle).priority();
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  Stream& stream = fake_cuda::stream_of(handle);
  const std::lock_guard lock(fake_cuda::registry().mutex);
  fake_cuda::registry().all.erase(&stream);
  stream.stop();
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  Stream& stream = fake_cuda::stream_of(handle);
  if (stream.capture != nullptr) return fake_cuda::failed(cudaErrorStreamCaptureUnsupported);
  fake_cuda::count_host_sync("cudaStreamSynchronize");
  stream.now().wait();
  return fake_cuda::sticky();
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  fake_cuda::count("query");
  FAKE_CUDA_RETURN_IF_STICKY();
  const bool done = fake_cuda::stream_of(handle).now().reached();
  return done ? cudaSuccess : fake_cuda::failed(cudaErrorNotReady);
}

cudaError_t cudaDeviceSynchronize() {
  fake_cuda::count_host_sync("cudaDeviceSynchronize");
  fake_cuda::wait_for_device(fake_cuda::current_device());
  return fake_cuda::sticky();
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  fake_cuda::submit(stream, [function, data] { function(data); });
  return cudaSuccess;
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void* data,
                                  unsigned) {
  fake_cuda::submit(stream,
                    [stream, function, data] { function(stream, fake_cuda::sticky(), data); });
  return cudaSuccess;
}
}
