// CUDA graphs: what a stream recorded, launched as a whole.
#include <cuda_runtime_api.h>

#include "tests/support/fake_cuda/runtime/errors.h"
#include "tests/support/fake_cuda/runtime/ledger.h"
#include "tests/support/fake_cuda/runtime/settings.h"
#include "tests/support/fake_cuda/runtime/streams.h"

#include <atomic>
#include <utility>

using fake_cuda::Graph;
using fake_cuda::Stream;

extern "C" {

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  static thread_local cudaStreamCaptureMode mine = cudaStreamCaptureModeGlobal;
  std::swap(*mode, mine);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode) {
  Stream& stream = fake_cuda::stream_of(handle);
  if (stream.capture != nullptr) return fake_cuda::failed(cudaErrorStreamCaptureUnsupported);
  static std::atomic<uint64_t> captures{0};
  stream.capture = new Graph;
  stream.capture->id = ++captures;
  stream.capture->streams.insert(&stream);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* out) {
  Graph* graph = fake_cuda::stream_of(handle).capture;
  if (graph == nullptr) return fake_cuda::failed(cudaErrorStreamCaptureInvalidated);
  for (Stream* stream : graph->streams) stream->capture = nullptr;
  graph->streams.clear();
  if (fake_cuda::settings().capture_fails) {
    *out = nullptr;
    return fake_cuda::failed(cudaErrorStreamCaptureInvalidated);
  }
  *out = reinterpret_cast<cudaGraph_t>(graph);
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  *status = fake_cuda::stream_of(handle).capture != nullptr ? cudaStreamCaptureStatusActive
                                                            : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** nodes, const cudaGraphEdgeData** edges,
                                     std::size_t* count) {
  Graph* capture = fake_cuda::stream_of(handle).capture;
  *status = capture != nullptr ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  if (id != nullptr) *id = capture != nullptr ? capture->id : 0;
  if (graph != nullptr) *graph = reinterpret_cast<cudaGraph_t>(capture);
  if (nodes != nullptr) *nodes = nullptr;
  if (edges != nullptr) *edges = nullptr;
  if (count != nullptr) *count = 0;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long) {
  *out = reinterpret_cast<cudaGraphExec_t>(new Graph(*reinterpret_cast<Graph*>(graph)));
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* out, cudaGraph_t graph,
                                          unsigned long long flags) {
  return cudaGraphInstantiate(out, graph, flags);
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete reinterpret_cast<Graph*>(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete reinterpret_cast<Graph*>(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t handle, cudaGraphNode_t*, std::size_t* count) {
  const auto* graph = reinterpret_cast<Graph*>(handle);
  *count = graph->work.size() + graph->kernels.size();
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream) {
  FAKE_CUDA_RETURN_IF_STICKY();
  fake_cuda::count("graph_launch");
  const auto* graph = reinterpret_cast<Graph*>(handle);
  for (const auto& kernel : graph->kernels) fake_cuda::count_kernel(kernel);
  for (const auto& work : graph->work) fake_cuda::submit(stream, work);
  return cudaSuccess;
}

cudaError_t cudaUserObjectCreate(cudaUserObject_t* out, void*, cudaHostFn_t, unsigned, unsigned) {
  *out = reinterpret_cast<cudaUserObject_t>(0x10);
  return cudaSuccess;
}
cudaError_t cudaUserObjectRelease(cudaUserObject_t, unsigned) { return cudaSuccess; }
cudaError_t cudaGraphRetainUserObject(cudaGraph_t, cudaUserObject_t, unsigned, unsigned) {
  return cudaSuccess;
}
}
