// Fake libnvidia-ml.so.1: what torch and monitoring ask for by name. nvml.h is in no wheel that
// trainer needs, so the functions are declared here.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

constexpr int kSuccess = 0;
constexpr int kNotSupported = 3;

unsigned devices() {
  const char* text = std::getenv("FAKECUDA_DEVICES");
  return text == nullptr ? 1 : static_cast<unsigned>(std::atoi(text));
}

// A handle is the device's index, moved away from null.
constexpr std::uintptr_t kFirst = 0x100;

}  // namespace

extern "C" {

int nvmlInit_v2() { return kSuccess; }
int nvmlInit() { return kSuccess; }
int nvmlShutdown() { return kSuccess; }
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = devices();
  return kSuccess;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** out) {
  *out = reinterpret_cast<void*>(kFirst + index);
  return kSuccess;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char*, void** out) {
  *out = reinterpret_cast<void*>(kFirst);
  return kSuccess;
}
int nvmlDeviceGetComputeRunningProcesses(void*, unsigned* count, void*) {
  *count = 0;
  return kSuccess;
}
int nvmlDeviceGetUUID(void* handle, char* out, unsigned size) {
  const auto index = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(handle) - kFirst);
  std::snprintf(out, size, "GPU-fafafafa-0000-0000-0000-%012x", index);
  return kSuccess;
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = 13020;
  return kSuccess;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(void*, unsigned, int*) { return kNotSupported; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void*, unsigned, void*) { return kNotSupported; }
int nvmlDeviceGetGpuFabricInfoV(void*, void*) { return kNotSupported; }
const char* nvmlErrorString(int) { return "error of the fake NVML"; }
}
