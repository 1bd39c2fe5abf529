// Snapshots in shards: what the ranks write is what one file would hold, and nothing else passes.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include "tests/support/catch.h"

#include "tests/trainer/snapshot/snapshot_files.h"
#include "tests/trainer/test_model.h"
#include "trainer/runtime/error.h"
#include "trainer/snapshot/remote_snapshots.h"
#include "trainer/snapshot/snapshot.h"
#include "trainer/snapshot/snapshot_folder.h"
#include "trainer/snapshot/state_piece.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;
using test::read_file;
using test::sample_meta;
using test::TempDir;

std::vector<NamedTensor> sample_state() {
  return {{"model.w", torch::arange(35, torch::kFloat32).view({7, 5})},
          {"model.b", torch::arange(3, torch::kFloat32)},
          {"optimizer.w.exp_avg", torch::full({7, 5}, 0.5F)},
          {"buffer.scalar", torch::tensor(4.0F)},
          {"buffer.empty", torch::zeros({0, 2})},
          {"generator.cpu", torch::arange(5, torch::kUInt8)}};
}

std::vector<LogicalTensor> logical_tensors(const std::vector<NamedTensor>& tensors) {
  std::vector<LogicalTensor> result;
  for (const auto& each : tensors)
    result.push_back({each.name, dtype_name(each.tensor.scalar_type()), each.tensor.sizes().vec()});
  return result;
}

SnapshotMeta meta_of(int64_t step) {
  auto meta = sample_meta(step);
  meta.run_id = "0123456789abcdef";
  return meta;
}

ShardId id_of(int64_t step, int rank, int ranks) {
  return {"0123456789abcdef", 1, step, rank, ranks};
}

void write_pieces(SnapshotFolder& folder, const ShardId& id,
                  const std::vector<StatePiece>& pieces) {
  const auto parts = parts_of(pieces);
  StateBuffer buffer(parts);
  buffer.begin_copy(parts, nullptr);
  folder.write_shard(id, folder.stem_for_shards(id.step), pieces,
                     bytes_of_pieces(pieces, buffer.tensors()));
}

void save(SnapshotFolder& folder, int64_t step, int ranks,
          const std::vector<NamedTensor>& state = sample_state()) {
  const std::string stem = folder.stem_for_shards(step);
  for (int rank = 0; rank < ranks; ++rank)
    write_pieces(folder, id_of(step, rank, ranks), own_share(state, rank, ranks));
  folder.publish_index(meta_of(step), id_of(step, 0, ranks), stem, logical_tensors(state));
}

/// A folder of the run that the metadata names.
struct Place {
  explicit Place(int64_t limit = 2) : folder(dir.file("s.pt"), limit, log) {
    folder.follow("0123456789abcdef", 1);
  }
  std::string shard(int64_t step, int rank, int ranks) const {
    return shard_name(older_snapshot_path(folder.path(), step), rank, ranks);
  }
  std::set<std::string> files() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(dir.path()))
      names.insert(entry.path().filename().string());
    names.erase("s.pt.manifest.json");
    return names;
  }
  TempDir dir;
  Log log = test::quiet_log();
  SnapshotFolder folder;
};

std::string digest_of_one_file(const TempDir& dir, int64_t step) {
  NamedTensors tensors;
  for (const auto& each : sample_state()) tensors.emplace_back(each.name, each.tensor);
  test::save_snapshot(dir.file("one.pt"), meta_of(step), tensors);
  return content_sha256(*open_snapshot(dir.file("one.pt")).file);
}

}  // namespace

TEST_CASE("a state in shards is the state in one file, however many ranks write it") {
  for (const int ranks : {1, 2, 3, 7, 40}) {
    INFO(ranks << " ranks");
    Place place;
    save(place.folder, 8, ranks);
    const auto opened = open_snapshot(place.folder.path());
    CHECK(opened.meta.to_metadata() == meta_of(8).to_metadata());
    CHECK(content_sha256(*opened.file) == digest_of_one_file(place.dir, 8));
    CHECK(opened.file->shards().size() == static_cast<std::size_t>(ranks));
    for (const auto& each : sample_state()) {
      const auto loaded = torch::zeros_like(each.tensor);
      opened.load_into(each.name, loaded);
      CHECK(torch::equal(loaded, each.tensor));
    }
    auto part = torch::zeros({11}, torch::kFloat32);
    opened.load_into("model.w", TensorLayout::whole({7, 5}).slice(13, 24), part);
    CHECK(torch::equal(part, torch::arange(13, 24, torch::kFloat32)));
  }
}

TEST_CASE("the ranks' shares of a state are equal but for a row") {
  const std::vector<NamedTensor> state = {
      {"a", torch::zeros({1000, 3})}, {"b", torch::zeros({77})}, {"c", torch::zeros({500, 4})}};
  for (int rank = 0; rank < 4; ++rank) {
    int64_t elements = 0;
    for (const auto& piece : own_share(state, rank, 4)) elements += piece.box.elements();
    CHECK(std::abs(elements - 5077 / 4) <= 4);
  }
}

TEST_CASE("boxes of any shape make up a tensor") {
  Place place;
  const auto whole = torch::arange(24, torch::kFloat32).view({4, 6});
  const auto box = [&](int64_t row, int64_t column, int64_t rows, int64_t columns) {
    const auto part = whole.narrow(0, row, rows).narrow(1, column, columns).contiguous();
    return StatePiece{"model.w", {4, 6}, {{row, column}, {rows, columns}}, {part}};
  };
  write_pieces(place.folder, id_of(1, 0, 3), {box(0, 0, 4, 2)});
  write_pieces(place.folder, id_of(1, 1, 3), {box(0, 2, 1, 4)});
  write_pieces(place.folder, id_of(1, 2, 3), {box(1, 2, 3, 4)});
  place.folder.publish_index(meta_of(1), id_of(1, 0, 3), "s.pt.step-1",
                             {{"model.w", "F32", {4, 6}}});
  const auto loaded = torch::zeros({4, 6});
  open_snapshot(place.folder.path()).load_into("model.w", loaded);
  CHECK(torch::equal(loaded, whole));
}

TEST_CASE("a shard that cannot be looked up is not called missing") {
  Place place;
  write_pieces(place.folder, id_of(1, 0, 1), own_share(sample_state(), 0, 1));
  const std::string shard = place.shard(1, 0, 1);
  std::filesystem::remove(shard);
  std::filesystem::create_symlink(shard, shard);  // ELOOP
  CHECK_THROWS_AS(
      place.folder.publish_index(meta_of(1), id_of(1, 0, 1), place.folder.stem_for_shards(1),
                                 logical_tensors(sample_state())),
      UnreadableError);
}

TEST_CASE("elements that are missing, twice or outside keep a save from becoming a snapshot") {
  const std::vector<LogicalTensor> tensors = {{"w", "F32", {4, 6}}, {"b", "F32", {3}}};
  const Box b = Box::whole({3});
  CHECK(cover_error(tensors, {{"w", {Box::whole({4, 6})}}, {"b", {b}}}).empty());
  CHECK(cover_error(tensors, {{"w", {{{0, 0}, {4, 3}}, {{0, 3}, {4, 3}}}}, {"b", {b}}}).empty());
  CHECK(cover_error(tensors, {{"w", {{{0, 0}, {3, 6}}}}, {"b", {b}}}) ==
        "6 of 24 elements of w are missing");
  CHECK(cover_error(tensors, {{"w", {{{0, 0}, {3, 6}}, {{2, 0}, {1, 6}}}}, {"b", {b}}}) ==
        "elements of w are there twice");
  CHECK(cover_error(tensors, {{"w", {{{0, 0}, {5, 6}}}}, {"b", {b}}}) ==
        "a piece of w lies outside");
  CHECK(cover_error(tensors, {{"w", {Box::whole({4, 6})}}}) == "no piece of b");
  CHECK(cover_error({tensors[1]}, {{"w", {Box::whole({4, 6})}}, {"b", {b}}}) ==
        "pieces of w, which is not in the state");
  Place place;
  save(place.folder, 1, 2);
  write_pieces(place.folder, id_of(2, 0, 2), own_share(sample_state(), 0, 2));
  auto lacking = own_share(sample_state(), 1, 2);
  lacking.pop_back();
  write_pieces(place.folder, id_of(2, 1, 2), lacking);
  CHECK_THROWS_WITH(place.folder.publish_index(meta_of(2), id_of(2, 0, 2), "s.pt.step-2",
                                               logical_tensors(sample_state())),
                    Contains("generator.cpu"));
  CHECK(open_snapshot(place.folder.path()).meta.step == 1);
}

TEST_CASE("without its index a save is none: the snapshot before it counts, and no file stays") {
  Place place;
  save(place.folder, 4, 2);
  write_pieces(place.folder, id_of(8, 0, 2), own_share(sample_state(), 0, 2));
  CHECK(open_snapshot(place.folder.path()).meta.step == 4);
  CHECK(place.folder.find()->meta.step == 4);
  CHECK_FALSE(place.folder.has_all_shards(id_of(8, 0, 2), "s.pt.step-8"));
  CHECK_THROWS_WITH(place.folder.publish_index(meta_of(8), id_of(8, 0, 2), "s.pt.step-8",
                                               logical_tensors(sample_state())),
                    Contains("s.pt.step-8.1-of-2 is missing"));
  save(place.folder, 12, 3);
  CHECK(place.files() == std::set<std::string>{"s.pt", "s.pt.step-12.0-of-3", "s.pt.step-12.1-of-3",
                                               "s.pt.step-12.2-of-3", "s.pt.step-4",
                                               "s.pt.step-4.0-of-2", "s.pt.step-4.1-of-2"});
}

TEST_CASE("a snapshot that is deleted takes its shards along, also one that is replaced") {
  for (const int64_t limit : {1, 2}) {
    Place place(limit);
    for (const int64_t step : {1, 2, 3, 4}) save(place.folder, step, 2);
    std::set<std::string> files = {"s.pt", "s.pt.step-4.0-of-2", "s.pt.step-4.1-of-2"};
    if (limit == 2) files.insert({"s.pt.step-3", "s.pt.step-3.0-of-2", "s.pt.step-3.1-of-2"});
    CHECK(place.files() == files);
    CHECK(place.folder.entries().front().bytes > fs::file_size(place.folder.path()));
  }
}

TEST_CASE("shards of other runs and of a snapshot of the same step are never written over") {
  Place place;
  place.dir.write("s.pt.step-5.0-of-2", "of somebody else");
  CHECK(place.folder.stem_for_shards(5) == "s.pt.step-5-2");
  save(place.folder, 5, 2);
  CHECK(read_file(place.dir.file("s.pt.step-5.0-of-2")) == "of somebody else");
  CHECK(place.folder.stem_for_shards(5) == "s.pt.step-5-3");
  save(place.folder, 5, 2);  // with its evaluation, say
  CHECK(open_snapshot(place.folder.path()).meta.step == 5);
  CHECK(place.files() == std::set<std::string>{"s.pt", "s.pt.step-5.0-of-2", "s.pt.step-5-3.0-of-2",
                                               "s.pt.step-5-3.1-of-2"});
}

TEST_CASE("a shard that is missing, truncated, damaged or of another save is named in one line") {
  Place place;
  save(place.folder, 4, 2);
  save(place.folder, 8, 2);
  const std::string shard = place.shard(8, 1, 2);
  std::string bytes = read_file(shard);
  const auto broken = [&](const std::string& content) {
    std::ofstream(shard, std::ios::binary) << content;
    try {
      open_snapshot(place.folder.path());
    } catch (const RunError& error) {
      const std::string line = error.what();
      CHECK(line.find('\n') == std::string::npos);
      return line;
    }
    return std::string("opened");
  };
  CHECK(broken(bytes) == "opened");
  CHECK_THAT(broken(bytes.substr(0, bytes.size() - 3)),
             Contains("1-of-2 has") && Contains("truncated"));
  std::string flipped = bytes;
  flipped.back() = static_cast<char>(flipped.back() ^ 1);
  CHECK_THAT(broken(flipped), Contains("1-of-2: the checksum of tensor"));
  CHECK_THAT(broken(read_file(place.shard(4, 1, 2))),
             Contains("is not the shard that was saved with it: it holds step 4, rank 1 of 2, the "
                      "snapshot is of step 8"));
  fs::remove(shard);
  CHECK_THROWS_WITH(open_snapshot(place.folder.path()),
                    Contains("its shard") && Contains("1-of-2 is missing"));
  // The run falls back to the snapshot before, and the shards that are left stay for whoever has
  // the missing one.
  CHECK(place.folder.find()->meta.step == 4);
  save(place.folder, 9, 2);
  CHECK(place.files().contains("s.pt.step-8.0-of-2"));
}

TEST_CASE("a rank of an earlier start of the run cannot replace a shard of this one") {
  Place place;
  save(place.folder, 4, 2);
  SnapshotFolder earlier(place.folder.path(), 2, place.log);
  earlier.follow("0123456789abcdef", 1);
  SnapshotFolder later(place.folder.path(), 2, place.log);
  REQUIRE(later.find().has_value());
  later.begin_run(meta_of(4).config_json, meta_of(4).data_sha256);
  later.begin_run(meta_of(4).config_json, meta_of(4).data_sha256);
  CHECK_THROWS_AS(write_pieces(earlier, id_of(8, 1, 2), own_share(sample_state(), 1, 2)),
                  SupersededError);
}

/// `file` cannot be opened for as long as this lives.
class Unreadable {
 public:
  Unreadable(const TempDir& elsewhere, const std::string& file)
      : file_(file), aside_(elsewhere.file("aside")) {
    fs::rename(file_, aside_);
    fs::create_symlink(fs::path(file_).filename(), file_);  // ELOOP
  }
  ~Unreadable() {
    fs::remove(file_);
    fs::rename(aside_, file_);
  }
  Unreadable(const Unreadable&) = delete;
  Unreadable& operator=(const Unreadable&) = delete;

 private:
  std::string file_;
  std::string aside_;
};

TEST_CASE("no shard is deleted while an index cannot be read") {
  for (const bool newest : {true, false}) {
    INFO(newest);
    const TempDir elsewhere;
    Place place;
    save(place.folder, 4, 2);
    save(place.folder, 8, 2);
    const auto before = place.files();
    {
      const Unreadable hidden(elsewhere,
                              newest ? place.folder.path() : place.dir.file("s.pt.step-4"));
      place.folder.remove_orphans();
      CHECK_THROWS_AS(place.folder.stem_for_shards(8), UnreadableError);
    }
    CHECK(place.files() == before);
    CHECK(open_snapshot(place.dir.file("s.pt.step-4")).meta.step == 4);
    CHECK(open_snapshot(place.folder.path()).meta.step == 8);
    save(place.folder, 12, 2);  // and then what is superseded goes
    CHECK_FALSE(place.files().contains("s.pt.step-4.0-of-2"));
  }
}

TEST_CASE("a superseded index that cannot be read or deleted keeps its shards") {
  const TempDir elsewhere;
  Place place;
  save(place.folder, 1, 2);
  save(place.folder, 2, 2);
  {
    for (int rank = 0; rank < 2; ++rank)
      write_pieces(place.folder, id_of(3, rank, 2), own_share(sample_state(), rank, 2));
    const Unreadable hidden(elsewhere, place.dir.file("s.pt.step-1"));
    place.folder.publish_index(meta_of(3), id_of(3, 0, 2), "s.pt.step-3",
                               logical_tensors(sample_state()));
  }
  CHECK(open_snapshot(place.dir.file("s.pt.step-1")).meta.step == 1);
  CHECK(open_snapshot(place.folder.path()).meta.step == 3);
}

TEST_CASE("an index that a user renamed or copied in its folder keeps its shards") {
  Place place(1);
  save(place.folder, 4, 2);
  fs::copy_file(place.folder.path(), place.dir.file("keep.pt"));
  save(place.folder, 8, 2);
  save(place.folder, 12, 2);
  CHECK(open_snapshot(place.dir.file("keep.pt")).meta.step == 4);
  CHECK(place.files() == std::set<std::string>{"keep.pt", "s.pt", "s.pt.step-12.0-of-2",
                                               "s.pt.step-12.1-of-2", "s.pt.step-4.0-of-2",
                                               "s.pt.step-4.1-of-2"});
}

TEST_CASE("a shard that the system does not let read is no damage, and nothing is moved") {
  const TempDir elsewhere;
  Place place;
  save(place.folder, 4, 2);
  save(place.folder, 8, 2);
  const auto before = place.files();
  {
    const Unreadable hidden(elsewhere, place.shard(8, 1, 2));
    CHECK_THROWS_WITH(place.folder.find(), Contains("cannot be read") && Contains("1-of-2") &&
                                               Contains("nothing was changed"));
  }
  CHECK(place.files() == before);
  CHECK(place.folder.find()->meta.step == 8);
}

TEST_CASE("bytes behind the header of an index are found") {
  Place place;
  save(place.folder, 4, 2);
  std::ofstream(place.folder.path(), std::ios::app) << 'x';
  CHECK_THROWS_WITH(open_snapshot(place.folder.path()), Contains("extra bytes"));
}

TEST_CASE("a link to an index leads to the shards next to the index") {
  const TempDir elsewhere;
  Place place;
  save(place.folder, 4, 2);
  fs::create_symlink(place.folder.path(), elsewhere.file("link.pt"));
  CHECK(open_snapshot(FetchedSnapshot(elsewhere.file("link.pt")).file()).meta.step == 4);
}

TEST_CASE("an index that names files outside its folder is refused") {
  Place place;
  save(place.folder, 4, 2);
  const SafetensorsFile index(place.folder.path());
  auto metadata = index.metadata();
  metadata[kShardsKey] = R"([{"file": "../s.pt.step-4.0-of-2", "bytes": 1, "checksum": "0"}])";
  publish_safetensors(place.dir.file("evil.pt"), "", metadata, {});
  CHECK_THROWS_AS(open_snapshot(place.dir.file("evil.pt")), RunError);
}

}  // namespace ddp::train
