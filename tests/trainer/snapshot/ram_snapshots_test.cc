// Copies of the state in shared memory.
#include "trainer/snapshot/ram_snapshots.h"

#include <cmath>
#include <filesystem>
#include "tests/support/catch.h"

#include "tests/trainer/parallel/fake_device.h"
#include "tests/trainer/snapshot/snapshot_files.h"
#include "tests/trainer/test_model.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

using test::quiet_log;
using test::sample_meta;
using test::sample_tensors;
using test::TempDir;

/// Steps of the whole copies.
std::vector<int64_t> steps_in(const std::string& folder) {
  std::vector<int64_t> steps;
  for (const auto& file : ram_snapshot_files(folder, "/x/s.pt")) {
    try {
      steps.push_back(open_snapshot(file).meta.step);
    } catch (const std::runtime_error&) {
      steps.push_back(-1);
    }
  }
  return steps;
}

RamSnapshots made_in(const TempDir& dir, const std::string& resumed_from = "") {
  return {dir.path(), "/x/s.pt", resumed_from};
}

void store(RamSnapshots& ram, const SnapshotMeta& meta, const NamedTensors& tensors) {
  ram.begin(meta.to_metadata(), tensors, nullptr);
  ram.finish(meta.to_metadata());
}

}  // namespace

TEST_CASE("the older of two copies is overwritten") {
  const TempDir dir;
  auto ram = made_in(dir);
  using Steps = std::vector<int64_t>;
  CHECK(steps_in(dir.path()) == Steps{-1, -1});
  for (int64_t step = 1; step <= 3; ++step) store(ram, sample_meta(step), sample_tensors());
  CHECK(steps_in(dir.path()) == Steps{3, 2});
  remove_ram_snapshots(dir.path(), "/x/s.pt");
  CHECK(std::filesystem::is_empty(dir.path()));
}

TEST_CASE("the copy that a process went on from is overwritten last") {
  const TempDir dir;
  {
    auto ram = made_in(dir);
    store(ram, sample_meta(4), sample_tensors());
    store(ram, sample_meta(5), sample_tensors());
  }
  using Steps = std::vector<int64_t>;
  CHECK(steps_in(dir.path()) == Steps{4, 5});
  auto next = made_in(dir, ram_snapshot_files(dir.path(), "/x/s.pt")[1]);
  CHECK(steps_in(dir.path()) == Steps{4, 5});
  store(next, sample_meta(6), sample_tensors());
  CHECK(steps_in(dir.path()) == Steps{6, 5});
  auto again = made_in(dir, ram_snapshot_files(dir.path(), "/x/s.pt")[0]);
  store(again, sample_meta(7), sample_tensors());
  CHECK(steps_in(dir.path()) == Steps{6, 7});
}

TEST_CASE("metadata that has grown since the restart changes the size of the older copy only") {
  const TempDir dir;
  auto small = sample_meta(1);
  small.config_json = "{}";
  {
    auto ram = made_in(dir);
    small.step = 4;
    store(ram, small, sample_tensors());
    small.step = 5;
    store(ram, small, sample_tensors());
  }
  auto grown = sample_meta(6);
  grown.config_json = std::string(100'000, 'x');
  auto next = made_in(dir, ram_snapshot_files(dir.path(), "/x/s.pt")[1]);
  using Steps = std::vector<int64_t>;
  CHECK(steps_in(dir.path()) == Steps{4, 5});
  store(next, grown, sample_tensors());
  CHECK(steps_in(dir.path()) == Steps{6, 5});
  grown.step = 7;
  store(next, grown, sample_tensors());
  CHECK(steps_in(dir.path()) == Steps{6, 7});
}

TEST_CASE("a copy holds the values, and its tensors are verified") {
  const TempDir dir;
  auto ram = made_in(dir);
  store(ram, sample_meta(1), sample_tensors());
  const auto copy = open_snapshot(ram_snapshot_files(dir.path(), "/x/s.pt")[0]);
  for (const auto& [name, tensor] : sample_tensors()) {
    auto loaded = torch::zeros_like(tensor);
    copy.load_into(name, loaded);
    CHECK(torch::equal(loaded, tensor));
  }
}

TEST_CASE("NaN does not become a copy") {
  const TempDir dir;
  auto ram = made_in(dir);
  auto tensors = sample_tensors();
  tensors[0].second[1][1] = std::nan("");
  store(ram, sample_meta(1), tensors);
  CHECK(steps_in(dir.path()) == std::vector<int64_t>{-1, -1});
}

TEST_CASE("a copy that a device had not made when it was given up costs the older one") {
  const TempDir dir;
  auto ram = made_in(dir);
  for (int64_t step = 1; step <= 2; ++step) store(ram, sample_meta(step), sample_tensors());
  test::FakeDevice device;
  ram.begin(sample_meta(3).to_metadata(), sample_tensors(), device.mark());
  {
    const DeviceGivenUp given_up;
    CHECK_FALSE(ram.finish(sample_meta(3).to_metadata()));
  }
  using Steps = std::vector<int64_t>;
  CHECK(steps_in(dir.path()) == Steps{-1, 2});
  device.run();
  store(ram, sample_meta(4), sample_tensors());
  CHECK(steps_in(dir.path()) == Steps{4, 2});
}

TEST_CASE("runs with other snapshots do not share copies, and no folder means no files") {
  CHECK(ram_snapshot_files("/f", "/a") != ram_snapshot_files("/f", "/b"));
  CHECK(ram_snapshot_files("", "/a").empty());
}

}  // namespace ddp::train
