#include "trainer/engine/snapshot.h"

#include <catch2/catch.hpp>
#include <filesystem>

#include "tests/trainer/test_model.h"
#include "trainer/config/config_text.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

using test::read_file;
using test::TempDir;

SnapshotMeta sample_meta(int64_t step) {
  SnapshotMeta meta;
  meta.step = step;
  meta.cursor = {2, 40};
  meta.optimizer_step = 11;
  meta.grad_scaler = {1024.0F, 7};
  meta.vocabulary = {"\n", "a", "\"", "\xC3\xA4"};
  meta.config_json = config_to_json(Config());
  meta.data_sha256 = std::string(64, 'a');
  meta.micro_batches_per_step = 4;
  meta.world_size = 2;
  return meta;
}

NamedTensors sample_tensors() {
  return {{"model.w", torch::arange(12, torch::kFloat32).view({3, 4})},
          {"optimizer.w.exp_avg", torch::full({3, 4}, 0.5F)},
          {"generator.cpu", torch::arange(5, torch::kUInt8)}};
}

void save(const std::string& path, int64_t step) {
  save_snapshot(path, sample_meta(step), sample_tensors());
}

// A log whose console lines go nowhere.
Log quiet_log() { return Log(false, ""); }

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

TEST_CASE("the snapshot before the newest one is kept") {
  const TempDir dir;
  const std::string path = dir.file("s.pt");
  save(path, 1);
  save(path, 2);
  CHECK(open_snapshot(path).meta.step == 2);
  CHECK(open_snapshot(previous_snapshot_path(path)).meta.step == 1);
}

TEST_CASE("every flipped bit is found") {
  const TempDir dir;
  const std::string path = dir.file("s.pt");
  save(path, 1);
  const std::string good = read_file(path);
  int refused = 0;
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
    dir.write("s.pt", bad);
    try {
      open_snapshot(path);
      FAIL("flipped bit at byte " << at << " was not noticed");
    } catch (const std::runtime_error&) {
      ++refused;
    }
  }
  CHECK(refused == static_cast<int>(good.size()));
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

TEST_CASE("a damaged newest snapshot gives way to the one before it") {
  const TempDir dir;
  const std::string path = dir.file("s.pt");
  save(path, 1);
  save(path, 2);
  dir.write("s.pt", read_file(path).substr(0, 100));
  Log log = quiet_log();
  const auto found = find_snapshot(path, log);
  REQUIRE(found.has_value());
  CHECK(found->meta.step == 1);
}

TEST_CASE("when no snapshot is good the run refuses to overwrite them") {
  const TempDir dir;
  const std::string path = dir.file("s.pt");
  Log log = quiet_log();
  CHECK_FALSE(find_snapshot(path, log).has_value());
  dir.write("s.pt", "");
  CHECK_THROWS_WITH(find_snapshot(path, log), Catch::Contains("move it away"));
  dir.write("s.pt.prev", "x");
  CHECK_THROWS_WITH(find_snapshot(path, log), Catch::Contains("move both files away"));
}

TEST_CASE("an older snapshot alone is used only when a save was cut between the two renames") {
  const TempDir dir;
  const std::string path = dir.file("s.pt");
  save(path, 1);
  std::filesystem::rename(path, previous_snapshot_path(path));
  Log log = quiet_log();
  CHECK_FALSE(
      find_snapshot(path, log).has_value());  // the user deleted the newest one: start afresh
  dir.write("s.pt.tmp.123", "cut");
  REQUIRE(find_snapshot(path, log).has_value());
  CHECK(find_snapshot(path, log)->meta.step == 1);
}

TEST_CASE("a snapshot of a newer format is a user's error, not damage") {
  const TempDir dir;
  const std::string path = dir.file("s.pt");
  auto metadata = sample_meta(1).to_metadata();
  metadata["format_version"] = "2";
  publish_safetensors(path, "", metadata, {});
  CHECK_THROWS_AS(open_snapshot(path), UserError);
  CHECK_THROWS_WITH(open_snapshot(path),
                    Catch::Contains("newer trainer") && Catch::Contains("format 2"));
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
  CHECK(hash(meta, sample_tensors()) == base);

  CHECK(hash(sample_meta(2), sample_tensors()) != base);
  config.optimizer.learning_rate *= 2;
  meta.config_json = config_to_json(config);
  CHECK(hash(meta, sample_tensors()) != base);
  auto tensors = sample_tensors();
  tensors[1].second[0][0] += 1;
  CHECK(hash(sample_meta(1), tensors) != base);
}

TEST_CASE("a snapshot folder that cannot be written is found before training") {
  const TempDir dir;
  const std::string file = dir.write("file", "");
  CHECK_THROWS_AS(prepare_snapshot_folder(file + "/below/s.pt"), UserError);
  CHECK_THROWS_WITH(prepare_snapshot_folder("/proc/s.pt"),
                    Catch::Contains("trainer_config.snapshot_path"));
  CHECK_NOTHROW(prepare_snapshot_folder(dir.file("new/folder/s.pt")));
  CHECK(std::filesystem::is_empty(dir.file("new/folder")));
}

}  // namespace ddp::train
