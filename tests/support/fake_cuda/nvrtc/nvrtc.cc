// Fake libnvrtc.so.13: compiles nothing. Its images are a mark by which the fake driver knows them;
// the functions in them are the host's (driver/modules.cc).
#include <nvrtc.h>

#include <cstring>
#include <string>

#include "tests/support/fake_cuda/fake_cuda.h"

namespace {

const std::string kImage = FAKE_CUDA_IMAGE;

nvrtcResult give_size(size_t* size) {
  *size = kImage.size();
  return NVRTC_SUCCESS;
}
nvrtcResult give(char* image) {
  std::memcpy(image, kImage.data(), kImage.size());
  return NVRTC_SUCCESS;
}

}  // namespace

extern "C" {

nvrtcResult nvrtcVersion(int* major, int* minor) {
  *major = 0;  // no real version: what it leaves in a cache is its own
  *minor = 0;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetNumSupportedArchs(int* count) {
  *count = 3;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetSupportedArchs(int* archs) {
  archs[0] = 80;
  archs[1] = 90;
  archs[2] = 100;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char*, const char*, int,
                               const char* const*, const char* const*) {
  *program = nullptr;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcDestroyProgram(nvrtcProgram*) { return NVRTC_SUCCESS; }
nvrtcResult nvrtcCompileProgram(nvrtcProgram, int, const char* const*) {
  fakecuda_count("nvrtc:compile", 0);
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram, size_t* size) { return give_size(size); }
nvrtcResult nvrtcGetCUBIN(nvrtcProgram, char* image) { return give(image); }
nvrtcResult nvrtcGetPTXSize(nvrtcProgram, size_t* size) { return give_size(size); }
nvrtcResult nvrtcGetPTX(nvrtcProgram, char* image) { return give(image); }
const char* nvrtcGetErrorString(nvrtcResult) { return "fake NVRTC"; }
}
