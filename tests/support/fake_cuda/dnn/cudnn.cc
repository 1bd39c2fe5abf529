// Fake cuDNN: versions and handles. Convolutions and attention are stubs that report NOT_SUPPORTED.
#include <cudnn.h>

#include <cstdio>

#undef cudnnGetVersion

extern "C" {

size_t cudnnGetVersion() { return CUDNN_VERSION; }
size_t cudnnGetCudartVersion() { return CUDART_VERSION; }
const char* cudnnGetErrorString(cudnnStatus_t) { return "status of the fake cuDNN"; }
void cudnnGetLastErrorString(char* out, size_t size) { std::snprintf(out, size, "fake cuDNN"); }

cudnnStatus_t cudnnGetProperty(libraryPropertyType type, int* value) {
  *value = type == MAJOR_VERSION   ? CUDNN_MAJOR
           : type == MINOR_VERSION ? CUDNN_MINOR
                                   : CUDNN_PATCHLEVEL;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreate(cudnnHandle_t* out) {
  *out = reinterpret_cast<cudnnHandle_t>(new cudaStream_t(nullptr));
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete reinterpret_cast<cudaStream_t*>(handle);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  *reinterpret_cast<cudaStream_t*>(handle) = stream;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* stream) {
  *stream = *reinterpret_cast<cudaStream_t*>(handle);
  return CUDNN_STATUS_SUCCESS;
}
}
