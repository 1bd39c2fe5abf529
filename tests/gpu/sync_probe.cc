// Waits for a fake GPU at a place that its ledger has to name.
#include <cuda_runtime_api.h>

int main() {
  void* memory = nullptr;
  cudaMalloc(&memory, 1);
  return cudaDeviceSynchronize();  // the line
}
