// Weights in 4 bits as transformers with bitsandbytes reads and writes them:
// golden/quantized_llama.py.
#include "tests/support/catch.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/trainer/interop/interop_peer.h"
#include "tests/trainer/llama_kinds.h"
#include "tests/trainer/test_model.h"
#include "trainer/interop/export_model.h"
#include "trainer/model/llama/llama_pretrained.h"
#include "trainer/model/lora.h"
#include "trainer/runtime/error.h"
#include "trainer/task/adapted_model.h"
#include "trainer/tokenizer/byte_tokenizer.h"

namespace ddp::train {
namespace {

constexpr int64_t kQuantizedVocabulary = 64;

std::string golden_file(const std::string& name) {
  return std::string(DDP_TEST_DIR).append("/interop/golden/").append(name);
}

Config golden_config(const std::string& folder, BaseFormat format) {
  Config config = test::whole_config({}, 64);
  causal_architecture(config).take_folder(config, golden_file(folder));
  config.lora = {.rank = 2, .targets = {"*"}};
  config.quantize.base = format;
  return config;
}

struct GoldenModel {
  explicit GoldenModel(const Config& config)
      : model(make_causal_model(config, kQuantizedVocabulary, std::nullopt)),
        digest(add_adapters_to_base(*model, config, 1, "")) {
    model->eval();
  }
  torch::Tensor logits() const {
    const torch::NoGradGuard no_grad;
    const SafetensorsFile expected(golden_file("expected.safetensors"));
    return model->forward(test::read_tensor(expected, "inputs", torch::kInt64));
  }

  std::shared_ptr<CausalModel> model;
  std::string digest;
};

double difference_from_transformers(const torch::Tensor& logits) {
  const SafetensorsFile file(golden_file("expected.safetensors"));
  const auto expected = test::read_tensor(file, "logits", torch::kFloat32);
  return ((logits - expected).norm() / expected.norm()).item<double>();
}

}  // namespace

TEST_CASE("a Llama quantized here, or read in 4 bits, computes what transformers does") {
  const GoldenModel quantized(golden_config("llama", BaseFormat::kNf4));
  const GoldenModel read(golden_config("llama-nf4", BaseFormat::kNf4));
  const GoldenModel dequantized(golden_config("llama-nf4", BaseFormat::kNone));
  const GoldenModel plain(golden_config("llama", BaseFormat::kNone));
  CHECK(difference_from_transformers(quantized.logits()) < 1e-5);
  CHECK(difference_from_transformers(read.logits()) < 1e-5);
  CHECK(difference_from_transformers(dequantized.logits()) < 1e-5);
  CHECK(difference_from_transformers(plain.logits()) > 1e-2);
  CHECK(quantized.digest == plain.digest);  // before it is quantized
  CHECK(read.digest != dequantized.digest);
  // Read without requantizing: the same codes and scales.
  const auto of_read = read.model->named_buffers();
  for (const auto& item : quantized.model->named_buffers()) {
    INFO(item.key());
    if (item.key().ends_with("codes") || item.key().ends_with("absmax"))
      CHECK(torch::equal(item.value(), of_read[item.key()]));
  }
  for (const auto& p : quantized.model->model_parameters())
    CHECK_FALSE((p.name.ends_with("q_proj.weight") || p.name.ends_with("down_proj.weight")));
  CHECK(quantized.model->parameter_count() == plain.model->parameter_count());
}

TEST_CASE("weights that are in other codes than quantize.base are refused in one line") {
  CHECK_THROWS_WITH(GoldenModel(golden_config("llama-nf4", BaseFormat::kInt8)),
                    Catch::Contains("quantize.base=int8: the weights of ") &&
                        Catch::Contains("are in nf4 already; set quantize.base=nf4"));
}

TEST_CASE("4-bit weights are read from any type of bytes, and refused if not whole") {
  const std::string whole = test::read_file(golden_file("llama-nf4/model.safetensors"));
  const auto logits_of = [](const std::string& bytes) {
    const test::TempDir dir;
    std::filesystem::copy(golden_file("llama-nf4"), dir.file("edited"));
    std::ofstream(dir.file("edited/model.safetensors"), std::ios::binary) << bytes;
    Config config = golden_config("llama-nf4", BaseFormat::kNf4);
    set_model_below(config, dir.file("edited"));
    return GoldenModel(config).logits();
  };
  const auto edited = [&](const std::string& after, const std::string& text) {
    std::string bytes = whole;
    bytes.replace(bytes.find(after) + after.size(), text.size(), text);
    return bytes;
  };
  // As bnb_4bit_quant_storage names them.
  CHECK(torch::equal(logits_of(edited(R"(mlp.down_proj.weight":{"dtype":")", "I8")),
                     logits_of(whole)));
  CHECK_THROWS_WITH(logits_of(edited("down_proj.weight.quant_stat", "_")),
                    Catch::Contains("but is not complete"));
  std::uint64_t header = 0;
  std::memcpy(&header, whole.data(), sizeof header);
  const auto tensors = nlohmann::json::parse(whole.substr(sizeof header, header));
  const auto end = tensors.at("model.layers.0.mlp.down_proj.weight.nested_absmax")
                       .at("data_offsets")
                       .at(1)
                       .get<std::uint64_t>();
  std::string bytes = whole;
  bytes[sizeof header + header + end - 1] ^= '\x80';  // the sign
  CHECK_THROWS_WITH(logits_of(bytes), Catch::Contains("magnitude is negative or not finite"));
}

TEST_CASE("folders in 4 bits of transposed and fused layers are read, and merged") {
  Config gpt;
  gpt.gpt = test::tiny_config(2, 2, 64);
  gpt.data.block_size = 64;
  LlamaShape phi3 = test::llama_kind("phi3");  // parts begin within 256 magnitudes
  phi3.intermediate = 128;
  for (Config config : {gpt, test::whole_config(test::config_of(phi3), 64)}) {
    INFO(config.model);
    const test::TempDir dir;
    ExportedModel exported{config, kQuantizedVocabulary, {}};
    for (const auto& p : make_causal_model(config, kQuantizedVocabulary, 5)->model_parameters())
      exported.weights.push_back({p.name, p.tensor});
    export_model(exported, ByteTokenizer(), ExportFormat::kHuggingFace, dir.file("plain"));
    exported.to_nf4 = true;
    export_model(exported, ByteTokenizer(), ExportFormat::kHuggingFace, dir.file("nf4"));
    const auto read = [&](const std::string& folder, BaseFormat format) {
      Config its = config;
      its.lora = {.rank = 2, .targets = {"*"}};
      its.quantize.base = format;
      set_model_below(its, dir.file(folder));
      return GoldenModel(its);
    };
    const auto difference = [](const torch::Tensor& a, const torch::Tensor& b) {
      return ((a - b).norm() / b.norm()).item<double>();
    };
    const GoldenModel here = read("plain", BaseFormat::kNf4);
    GoldenModel there = read("nf4", BaseFormat::kNf4);
    const auto codes = here.model->named_buffers();
    for (const auto& item : there.model->named_buffers())
      if (item.key().ends_with("codes")) CHECK(torch::equal(item.value(), codes[item.key()]));
    CHECK(difference(there.logits(), here.logits()) < 1e-3);  // magnitudes have another mean
    CHECK(difference(there.logits(), read("nf4", BaseFormat::kNone).logits()) < 1e-5);
    CHECK(difference(there.logits(), read("plain", BaseFormat::kNone).logits()) > 1e-2);

    const torch::NoGradGuard no_grad;
    for (const auto& p : there.model->model_parameters())
      if (p.name.ends_with("lora_B.weight")) torch::nn::init::normal_(p.tensor, 0.0, 0.05);
    const auto merged = make_causal_model(config, kQuantizedVocabulary, std::nullopt);
    for (const auto& weight : merged_weights(*there.model))
      merged->named_parameters()[weight.name].copy_(weight.tensor);
    const auto adapted = there.logits();
    CHECK(difference(adapted, here.logits()) > 1e-2);
    there.model = merged;
    there.model->eval();
    CHECK(difference(there.logits(), adapted) < 1e-5);
  }
}

TEST_CASE("a folder exported in 4 bits has the tensors that transformers wrote") {
  const Config config = golden_config("llama", BaseFormat::kNone);
  const GoldenModel made(config);
  const test::TempDir dir;
  ExportedModel exported{config, kQuantizedVocabulary, {}};
  for (const auto& p : made.model->model_parameters())
    if (!is_of_adapter(p.name)) exported.weights.push_back({p.name, p.tensor});
  exported.to_nf4 = true;
  export_model(exported, ByteTokenizer(), ExportFormat::kHuggingFace, dir.file("out"));
  const SafetensorsFile ours(dir.file("out/model.safetensors"));
  const SafetensorsFile theirs(golden_file("llama-nf4/model.safetensors"));
  REQUIRE(ours.tensors().size() == theirs.tensors().size());
  for (const TensorBytes& tensor : theirs.tensors()) {
    INFO(tensor.name);
    const TensorBytes* const own = ours.find(tensor.name);
    REQUIRE(own != nullptr);
    CHECK(own->dtype == tensor.dtype);
    if (tensor.name.find("quant_state") != std::string::npos) {
      const auto state = [](const TensorBytes& text) {
        const auto* const begin = reinterpret_cast<const char*>(text.data);
        auto json = nlohmann::json::parse(begin, begin + text.size);
        json.erase("nested_offset");  // its last bits depend on the CPU
        return json;
      };
      CHECK(state(*own) == state(tensor));
      continue;
    }
    CHECK(own->shape == tensor.shape);
    if (tensor.name.ends_with("nested_absmax")) continue;  // likewise
    CHECK(std::memcmp(own->data, tensor.data, tensor.size) == 0);
  }
  const auto settings = nlohmann::json::parse(test::read_file(dir.file("out/config.json")));
  CHECK(settings.at("quantization_config").at("bnb_4bit_quant_type") == "nf4");
}

}  // namespace ddp::train
