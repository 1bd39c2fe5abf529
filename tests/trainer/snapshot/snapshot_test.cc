#include "trainer/snapshot/snapshot.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include "tests/support/catch.h"

#include "tests/trainer/run/cut_memory.h"
#include "tests/trainer/snapshot/snapshot_files.h"
#include "tests/trainer/test_model.h"
#include "trainer/config/keys/config_text.h"
#include "trainer/runtime/error.h"
#include "trainer/snapshot/snapshot_manifest.h"

namespace ddp::train {
namespace {

using test::read_file;
using test::sample_meta;
using test::sample_tensors;
using test::save_snapshot;
using test::TempDir;

void save(const std::string& path, int64_t step) {
  save_snapshot(path, sample_meta(step), sample_tensors());
}

}  // namespace

TEST_CASE("what was saved is loaded, bit for bit") {
  const TempDir dir;
  const std::string path = dir.file("s.pt");
  save(path, 12);
  const OpenedSnapshot opened = open_snapshot(path);
  CHECK(opened.meta.to_metadata() == sample_meta(12).to_metadata());
  CHECK(SnapshotMeta::from_json(opened.meta.to_json()).to_metadata() ==
        sample_meta(12).to_metadata());
  for (const auto& [name, tensor] : sample_tensors()) {
    auto loaded = torch::zeros_like(tensor);
    opened.load_into(name, loaded);
    CHECK(torch::equal(loaded, tensor));
  }
}

TEST_CASE("an evaluation that gave NaN or Inf is saved and loaded") {
  const TempDir dir;
  auto meta = sample_meta(12);
  const double infinity = std::numeric_limits<double>::infinity();
  meta.last_eval = EvalRecord{12, std::nan(""), -infinity, "loss"};
  meta.grad_scaler.scale = std::numeric_limits<float>::infinity();
  save_snapshot(dir.file("s.pt"), meta, sample_tensors());
  for (const auto& loaded :
       {open_snapshot(dir.file("s.pt")).meta,
        SnapshotMeta::from_json(open_snapshot(dir.file("s.pt")).meta.to_json())}) {
    REQUIRE(loaded.last_eval.has_value());
    CHECK(std::isnan(loaded.last_eval->loss));
    CHECK(loaded.last_eval->score == -infinity);
    CHECK(std::isinf(loaded.grad_scaler.scale));
  }
}

TEST_CASE("a NaN score never becomes the best one, and gives way to any other") {
  const EvalRecord nan{1, 1.0, std::nan(""), "loss"};
  const EvalRecord two{2, 2.0, 2.0, "loss"};
  CHECK_FALSE(is_better(nan, std::nullopt));
  CHECK_FALSE(is_better(nan, two));
  CHECK(is_better(two, nan));
  CHECK(is_better(two, std::nullopt));
  CHECK_FALSE(is_better(two, two));
}

/// As nobody would publish it: it is read back first.
static void replace_metadata(const std::string& path, const std::string& key,
                             const std::string& value) {
  constexpr std::size_t kLengthBytes = 8;
  const std::string file = read_file(path);
  uint64_t length = 0;
  std::memcpy(&length, file.data(), kLengthBytes);
  auto header = nlohmann::json::parse(file.substr(kLengthBytes, length));
  header["__metadata__"][key] = value;
  const std::string changed = header.dump();
  const uint64_t changed_length = changed.size();
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&changed_length), kLengthBytes);
  out << changed << file.substr(kLengthBytes + length);
}

TEST_CASE("metadata with a million nested brackets is damage told in one line") {
  const TempDir dir;
  const std::string bomb(1'000'000, '[');
  for (const char* key : {"config", "step_guard", "evaluation", "run_id"}) {
    CAPTURE(key);
    save(dir.file("s.pt"), 1);
    replace_metadata(dir.file("s.pt"), key, bomb);
    CHECK_THROWS_WITH(open_snapshot(dir.file("s.pt")),
                      Catch::EndsWith(std::string("s.pt: ") + key +
                                      " in its metadata nests too deeply: the file is damaged"));
  }
}

TEST_CASE("another rank opens the file that rank 0 has read, and no other one") {
  const TempDir dir;
  save(dir.file("s.pt"), 1);
  save(dir.file("other.pt"), 2);
  const std::string sum = header_checksum(open_snapshot(dir.file("s.pt")));
  const auto same = open_if_same({dir.file("s.pt")}, sum);
  REQUIRE(same.has_value());
  CHECK(same->meta.step == 1);
  auto target = torch::zeros_like(sample_tensors()[0].second);
  same->load_into("model.w", target);
  CHECK(torch::equal(target, sample_tensors()[0].second));
  CHECK_FALSE(open_if_same({dir.file("other.pt")}, sum).has_value());
  CHECK_FALSE(open_if_same({dir.file("none.pt")}, sum).has_value());
  CHECK_FALSE(open_if_same({dir.write("damaged.pt", "no snapshot")}, sum).has_value());
}

TEST_CASE("a manifest with a million nested brackets is none") {
  const TempDir dir;
  const std::string bomb(1'000'000, '[');
  dir.write("m.json", R"({"best":null,"snapshots":)" + bomb);
  CHECK_FALSE(read_manifest(dir.file("m.json")).has_value());
}

TEST_CASE("a transposed, strided target is filled by value") {
  const TempDir dir;
  save(dir.file("s.pt"), 1);
  auto target = torch::zeros({4, 3}).t();
  open_snapshot(dir.file("s.pt")).load_into("model.w", target);
  CHECK(torch::equal(target, sample_tensors()[0].second));
}

TEST_CASE("a tensor of another shape, dtype or name is a user's error that names both") {
  const TempDir dir;
  save(dir.file("s.pt"), 1);
  const OpenedSnapshot opened = open_snapshot(dir.file("s.pt"));
  CHECK_THROWS_WITH(
      opened.load_into("model.w", torch::zeros({4, 3})),
      Catch::Contains("[3, 4]") && Catch::Contains("[4, 3]") && Catch::Contains("snapshot_path"));
  CHECK_THROWS_AS(opened.load_into("model.w", torch::zeros({3, 4}, torch::kFloat64)), UserError);
  CHECK_THROWS_AS(opened.load_into("model.absent", torch::zeros({1})), UserError);
}

TEST_CASE("every flipped bit is found") {
  const TempDir dir;
  const std::string path = dir.file("s.pt");
  save(path, 1);
  const std::string good = read_file(path);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const auto write_byte = [&](std::size_t at, int byte) {
    file.seekp(static_cast<std::streamoff>(at)).put(static_cast<char>(byte)).flush();
  };
  std::size_t refused = 0;
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    write_byte(bit / 8, good[bit / 8] ^ (1 << (bit % 8)));
    try {
      open_snapshot(path);
      FAIL("flipped bit " << bit % 8 << " of byte " << bit / 8 << " was not noticed");
    } catch (const std::runtime_error&) {
      ++refused;
    }
    write_byte(bit / 8, good[bit / 8]);
  }
  CHECK(refused == 8 * good.size());
  open_snapshot(path);  // all of it is as it was
}

TEST_CASE("a file cut short anywhere is found") {
  const TempDir dir;
  const std::string path = dir.file("s.pt");
  save(path, 1);
  const std::string good = read_file(path);
  for (std::size_t size = 0; size < good.size(); size += 13) {
    dir.write("s.pt", good.substr(0, size));
    CHECK_THROWS_AS(open_snapshot(path), RunError);
  }
}

TEST_CASE("a part that cannot be read any more is an error, not the end of the process") {
  const TempDir dir;
  save_snapshot(dir.file("long"), sample_meta(1), {{"model.w", torch::ones({5000})}});
  const SafetensorsFile file(dir.file("long"));
  std::filesystem::resize_file(dir.file("long"), 4096);
  CHECK_THROWS_WITH(file.verify_checksum(), Catch::Contains("read error"));
}

TEST_CASE("a verified file is not kept in memory") {
  constexpr int64_t kTensors = 16, kFloats = 1 << 20;
  const TempDir dir;
  NamedTensors tensors;
  for (int64_t i = 0; i < kTensors; ++i)
    tensors.push_back({std::to_string(i), torch::ones({kFloats})});
  save_snapshot(dir.file("s.pt"), sample_meta(1), tensors);
  test::reset_peak_memory();
  const int64_t before = test::peak_memory_bytes();
  open_snapshot(dir.file("s.pt"));
  CHECK(test::peak_memory_bytes() - before < kTensors * kFloats);  // a quarter of it
}

TEST_CASE("a header that promises more than the file holds is refused without being followed") {
  const TempDir dir;
  const auto with_header = [&](const std::string& json) {
    const uint64_t length = json.size();
    return dir.write("s.pt",
                     std::string(reinterpret_cast<const char*>(&length), 8) + json + "data");
  };
  for (const char* json :
       {R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,400]}})",
        R"({"t":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})",
        R"({"t":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})",
        R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})",
        R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})",
        R"({"t":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})", R"({"t":3})", R"([])",
        R"({"__metadata__":{"a":1}})", "{"}) {
    INFO(json);
    CHECK_THROWS_AS(SafetensorsFile(with_header(json)), RunError);
  }
  const std::string huge(8, '\x7F');
  CHECK_THROWS_AS(SafetensorsFile(dir.write("s.pt", huge + "{}")), RunError);
}

TEST_CASE("a damaged tensor is named") {
  const TempDir dir;
  const std::string path = dir.file("s.pt");
  save(path, 1);
  std::string bytes = read_file(path);
  const auto at = bytes.size() - 5 - 4;  // the last byte before the generator's five
  bytes[at] = static_cast<char>(bytes[at] ^ 1);
  dir.write("s.pt", bytes);
  CHECK_THROWS_WITH(open_snapshot(path), Catch::Contains("tensor optimizer.w.exp_avg"));
}

TEST_CASE("bytes behind the last tensor are found") {
  const TempDir dir;
  const std::string path = dir.file("s.pt");
  save(path, 1);
  dir.write("s.pt", read_file(path) + "x");
  CHECK_THROWS_WITH(open_snapshot(path), Catch::Contains("after the last tensor"));
}

TEST_CASE("NaN and Inf are found in any place") {
  const auto first_bad = [](const NamedTensors& tensors) {
    StateBuffer buffer(tensors);
    buffer.begin_copy(tensors, nullptr);
    return first_non_finite(buffer.tensors());
  };
  for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    for (const auto type : {torch::kFloat32, torch::kFloat64}) {
      auto tensor = torch::full({5}, std::numeric_limits<float>::max(), type);
      CHECK(first_bad({{"a", tensor}}).empty());
      tensor[4] = bad;
      CHECK(first_bad({{"a", torch::ones({3})}, {"b", tensor}}) == "b");
    }
  }
}

TEST_CASE("a snapshot of a newer format is a user's error, not damage") {
  const TempDir dir;
  const std::string path = dir.file("s.pt");
  auto metadata = sample_meta(1).to_metadata();
  metadata["format_version"] = "5";
  publish_safetensors(path, "", metadata, {});
  CHECK_THROWS_AS(open_snapshot(path), UserError);
  CHECK_THROWS_WITH(open_snapshot(path),
                    Catch::Contains("newer trainer") && Catch::Contains("format 5"));
}

TEST_CASE("the content hash is that of the training state, not of paths and lengths of the run") {
  const TempDir dir;
  const auto hash = [&](const SnapshotMeta& meta, const NamedTensors& tensors) {
    save_snapshot(dir.file("s.pt"), meta, tensors);
    return content_sha256(*open_snapshot(dir.file("s.pt")).file);
  };
  const std::string base = hash(sample_meta(1), sample_tensors());
  Config config;
  config.data.path = "/elsewhere";
  config.trainer.snapshot_path = "/elsewhere/too";
  config.trainer.max_steps = 77;
  auto meta = sample_meta(1);
  meta.config_json = config_to_json(config);
  meta.world_size = 1;
  meta.run_id = "0123456789abcdef";
  CHECK(hash(meta, sample_tensors()) == base);

  CHECK(hash(sample_meta(2), sample_tensors()) != base);
  config.optimizer.learning_rate *= 2;
  meta.config_json = config_to_json(config);
  CHECK(hash(meta, sample_tensors()) != base);
  auto tensors = sample_tensors();
  tensors[1].second[0][0] += 1;
  CHECK(hash(sample_meta(1), tensors) != base);
}

}  // namespace ddp::train
