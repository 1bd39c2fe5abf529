#include "trainer/interop/torch_file.h"

#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/serialization/pickler.h>

#include <exception>

#include "trainer/runtime/error.h"
#include "trainer/runtime/files/atomic_file.h"

namespace ddp::train {

// torch::pickle_save() tags its dicts with TorchScript types, which weights_only=True refuses.
void write_torch_file(const std::string& path, const std::vector<NamedTensor>& tensors) {
  c10::Dict<std::string, torch::Tensor> state;
  for (const NamedTensor& tensor : tensors)
    state.insert(tensor.name, tensor.tensor.detach().to(torch::kCPU).contiguous());
  std::string pickle;
  torch::jit::Pickler pickler(
      [&](const char* bytes, std::size_t size) { pickle.append(bytes, size); }, nullptr, nullptr,
      nullptr, nullptr, /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(state);
  pickler.stop();

  AtomicFile file(path);
  std::exception_ptr
      failure;  // kept until the writer is done: it is C below, and writes when destroyed
  {
    caffe2::serialize::PyTorchStreamWriter writer([&](const void* bytes, std::size_t size) {
      try {
        if (failure == nullptr) file.write(bytes, size);
      } catch (const RunError&) {
        failure = std::current_exception();
      }
      return size;
    });
    writer.writeRecord("data.pkl", pickle.data(), pickle.size());
    const auto& data = pickler.tensorData();
    for (std::size_t i = 0; i < data.size(); ++i)
      writer.writeRecord("data/" + std::to_string(i), data[i].const_data_ptr(), data[i].nbytes());
    writer.writeEndOfFile();
  }
  if (failure != nullptr) std::rethrow_exception(failure);
  file.sync();
  file.commit();
}

}  // namespace ddp::train
