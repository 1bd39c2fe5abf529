// One use of an object store as a program, from its start to its end: ddp_store_client
// upload|download|list|hang URL [FILE] [NAME]. Built with LibTorch where there is one, which then
// computes before, while and after the store is used.
#include <cstdio>
#include <string>

#include "trainer/runtime/error.h"
#include "trainer/storage/remote_folder.h"
#include "trainer/storage/remote_mirror.h"
#ifdef DDP_WITH_TORCH
#include <ATen/ATen.h>
#endif

namespace {

using namespace ddp::train;

/// The sum of a product that is known beforehand.
bool torch_computes() {
#ifdef DDP_WITH_TORCH
  const auto product = at::matmul(at::ones({128, 64}), at::ones({64, 32}));
  return product.sum().item<float>() == 128.0F * 64.0F * 32.0F;
#else
  return true;
#endif
}

/// Sends in the background, gives up soon and ends while the call still hangs.
int end_while_it_hangs(const std::string& url, const std::string& file) {
  MirrorOptions options;
  options.patience = std::chrono::milliseconds(100);
  RemoteMirror mirror(open_remote_folder(url), options);
  mirror.publish({}, {file, "manifest"});
  const auto missing = mirror.flush(std::chrono::milliseconds(500));
  std::printf("missing %zu\n", missing.size());
  return missing.empty() ? 1 : 0;
}

int run(const std::string& what, const std::string& url, char** rest) {
  if (what == "hang") return end_while_it_hangs(url, rest[0]);
  const auto folder = open_remote_folder(url);
  if (what == "upload") folder->upload(rest[0], rest[1]);
  if (what == "download") folder->download(rest[1], rest[0]);
  for (const RemoteEntry& entry : folder->list())
    std::printf("%s %lld\n", entry.name.c_str(), static_cast<long long>(entry.size));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || !torch_computes()) return 2;
  try {
    const int code = run(argv[1], argv[2], argv + 3);
    return torch_computes() ? code : 2;
  } catch (const UserError& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 2;
  } catch (const RemoteError& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 10 + static_cast<int>(error.failure());
  } catch (const RunError& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
