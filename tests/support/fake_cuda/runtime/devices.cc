// Devices: how many, which ones are visible, and what they claim to be.
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/support/fake_cuda/fake_cuda.h"
#include "tests/support/fake_cuda/runtime/errors.h"
#include "tests/support/fake_cuda/runtime/ledger.h"
#include "tests/support/fake_cuda/runtime/memory.h"
#include "tests/support/fake_cuda/runtime/settings.h"
#include "tests/support/fake_cuda/runtime/streams.h"

namespace {

using fake_cuda::settings;
using fake_cuda::visible_devices;

bool exists(int device) {
  return device >= 0 && device < static_cast<int>(visible_devices().size());
}

int pci_bus(int device) { return 0x10 + visible_devices()[static_cast<std::size_t>(device)]; }

/// Loads libfakecuda_numerics.so, which is next to this library. It wraps torch's CUDA kernels, so
/// they have to be registered first: the first question for the number of devices comes after that.
void load_numerics() {
  static const bool loaded = [] {
    Dl_info self;
    ::dladdr(reinterpret_cast<const void*>(&cudaGetDeviceCount), &self);
    std::string path = self.dli_fname;
    path = path.substr(0, path.rfind('/') + 1) + "libfakecuda_numerics.so";
    if (::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr) return true;
    std::fprintf(stderr, "fake CUDA: %s\n", ::dlerror());
    std::_Exit(2);
  }();
  static_cast<void>(loaded);
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  load_numerics();
  *count = static_cast<int>(visible_devices().size());
  return *count > 0 ? cudaSuccess : fake_cuda::failed(cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int* device) {
  if (visible_devices().empty()) return fake_cuda::failed(cudaErrorNoDevice);
  *device = fake_cuda::current_device();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (!exists(device)) return fake_cuda::failed(cudaErrorInvalidDevice);
  FAKE_CUDA_RETURN_IF_STICKY();
  fake_cuda::begin_context(device);
  fake_cuda::set_current_device(device);
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int device) {
  if (!exists(device)) return fake_cuda::failed(cudaErrorInvalidDevice);
  *out = {};
  std::snprintf(out->name, sizeof out->name, "%s", settings().device_name.c_str());
  constexpr char kUuid[] = "\xfa\xfa\xfa\xfa";
  std::memcpy(out->uuid.bytes, kUuid, 4);
  out->uuid.bytes[15] = static_cast<char>(visible_devices()[static_cast<std::size_t>(device)]);
  out->totalGlobalMem = settings().memory_bytes;
  out->major = settings().compute_capability / 10;
  out->minor = settings().compute_capability % 10;
  out->pciBusID = pci_bus(device);
  out->sharedMemPerBlock = 48 << 10;
  out->sharedMemPerMultiprocessor = 228 << 10;
  out->sharedMemPerBlockOptin = 227 << 10;
  out->reservedSharedMemPerBlock = 1 << 10;
  out->regsPerBlock = out->regsPerMultiprocessor = 65536;
  out->warpSize = 32;
  out->memPitch = 2147483647;
  out->maxThreadsPerBlock = 1024;
  out->maxThreadsDim[0] = out->maxThreadsDim[1] = 1024;
  out->maxThreadsDim[2] = 64;
  out->maxGridSize[0] = 2147483647;
  out->maxGridSize[1] = out->maxGridSize[2] = 65535;
  out->maxThreadsPerMultiProcessor = 2048;
  out->maxBlocksPerMultiProcessor = 32;
  out->multiProcessorCount = 132;
  out->totalConstMem = 65536;
  out->textureAlignment = out->surfaceAlignment = 512;
  out->texturePitchAlignment = 32;
  out->memoryBusWidth = 5120;
  out->l2CacheSize = 50 << 20;
  out->asyncEngineCount = 3;
  out->unifiedAddressing = out->canMapHostMemory = out->concurrentKernels = out->ECCEnabled = 1;
  out->streamPrioritiesSupported = out->globalL1CacheSupported = out->localL1CacheSupported = 1;
  out->managedMemory = out->concurrentManagedAccess = out->computePreemptionSupported = 1;
  out->canUseHostPointerForRegisteredMem = out->cooperativeLaunch = out->clusterLaunch = 1;
  out->hostRegisterSupported = out->memoryPoolsSupported = 1;
  out->hostNumaId = -1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp p;
  if (const auto error = cudaGetDeviceProperties(&p, device); error != cudaSuccess) return error;
  switch (static_cast<int>(attribute)) {
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY:
      *value = 1024;
      break;
    case cudaDevAttrMaxBlockDimZ:
      *value = 64;
      break;
    case cudaDevAttrMaxGridDimX:
    case cudaDevAttrMaxPitch:
      *value = 2147483647;
      break;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ:
      *value = 65535;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = 48 << 10;
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = 228 << 10;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = 227 << 10;
      break;
    case cudaDevAttrReservedSharedMemoryPerBlock:
      *value = 1 << 10;
      break;
    case cudaDevAttrWarpSize:
      *value = 32;
      break;
    case cudaDevAttrMaxRegistersPerBlock:
      *value = 65536;
      break;
    case cudaDevAttrClockRate:
      *value = 1980000;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = p.multiProcessorCount;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = p.major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = p.minor;
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = 2048;
      break;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      *value = 32;
      break;
    case cudaDevAttrL2CacheSize:
      *value = p.l2CacheSize;
      break;
    case cudaDevAttrAsyncEngineCount:
      *value = 3;
      break;
    case cudaDevAttrPciBusId:
      *value = p.pciBusID;
      break;
    case cudaDevAttrTextureAlignment:
      *value = 512;
      break;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrConcurrentManagedAccess:
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrHostRegisterSupported:
    case cudaDevAttrCanUseHostPointerForRegisteredMem:
    case cudaDevAttrMemoryPoolsSupported:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrStreamPrioritiesSupported:
    case cudaDevAttrClusterLaunch:
      *value = 1;
      break;
    default:
      *value = 0;
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* out, int length, int device) {
  if (!exists(device)) return fake_cuda::failed(cudaErrorInvalidDevice);
  std::snprintf(out, static_cast<std::size_t>(length), "0000:%02X:00.0", pci_bus(device));
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int a, int b) {
  *can = a != b ? 1 : 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = settings().devices > 0 ? settings().driver_version : 0;
  return cudaSuccess;
}
cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  static void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  *function = driver == nullptr ? nullptr : ::dlsym(driver, name);
  if (*function == nullptr && driver != nullptr)
    *function = ::dlsym(driver, (std::string(name) + "_v2").c_str());
  const bool found = *function != nullptr;
  if (result != nullptr)
    *result = found ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return found ? cudaSuccess : cudaErrorSymbolNotFound;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t*, void*) {
  return fake_cuda::failed(
      static_cast<cudaError_t>(fakecuda_missing("cudaIpcGetMemHandle", cudaErrorNotSupported)));
}
cudaError_t cudaIpcOpenMemHandle(void**, cudaIpcMemHandle_t, unsigned) {
  return fake_cuda::failed(
      static_cast<cudaError_t>(fakecuda_missing("cudaIpcOpenMemHandle", cudaErrorNotSupported)));
}
cudaError_t cudaIpcCloseMemHandle(void*) { return cudaSuccess; }
}
