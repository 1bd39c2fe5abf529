#include "trainer/runtime/files/remote_path.h"

#include "tests/support/catch.h"

#include "tests/trainer/config/test_files.h"
#include "trainer/runtime/error.h"
#include "trainer/storage/remote_folder.h"

namespace ddp::train {
namespace {

std::string user_error(const std::string& path) {
  return test::error_of<UserError>([&] { split_remote(path); });
}

TEST_CASE("three schemes lead to an object store") {
  CHECK(is_remote("s3://b/k"));
  CHECK(is_remote("gs://b/k"));
  CHECK(is_remote("gcs://b/k"));
  for (const char* path : {"snapshot.pt", "/a/s3://b", "file:///a", "s3:/b/k", "S3://b/k", ""})
    CHECK_FALSE(is_remote(path));
}

TEST_CASE("an object is split at its last slash") {
  const RemotePath path = split_remote("s3://bucket/runs/7/snapshot.pt");
  CHECK(path.folder == "s3://bucket/runs/7");
  CHECK(path.name == "snapshot.pt");
  CHECK(split_remote("gs://b/k").folder == "gs://b");
}

TEST_CASE("what cannot be an object's name is refused with the right form") {
  CHECK(user_error("s3://bucket") ==
        "s3://bucket: not an object name; write s3://bucket/folder/name");
  CHECK(user_error("gs://bucket/") ==
        "gs://bucket/: not an object name; write gs://bucket/folder/name");
  for (const char* path : {"s3://", "s3:///k", "s3://b//k", "s3://b/../k", "s3://b/.", "local/k"})
    CHECK(user_error(path).find("not an object name") != std::string::npos);
}

TEST_CASE("file:// becomes a plain path") {
  CHECK(local_path("snapshot.pt") == "snapshot.pt");
  CHECK(local_path("file:///a/b") == "/a/b");
  CHECK(local_path("file://localhost/a") == "/a");
  CHECK(local_path("file:///a%20b%25") == "/a b%");
  CHECK(local_path("/odd://name") == "/odd://name");
}

TEST_CASE("a file:// that cannot be meant, and other schemes, are a user's error") {
  const auto error = [](const std::string& path) {
    return test::error_of<UserError>([&] { local_path(path); });
  };
  CHECK(error("file://a/b") == "file://a/b: file:// needs an absolute path; write file:///a/b");
  CHECK(error("file:///a%2") ==
        "file:///a%2: '%' must be followed by two hex digits; write %25 for a literal %");
  CHECK(error("file:///a%zz").find("hex digits") != std::string::npos);
  CHECK(error("abfs://c/k") ==
        "abfs://c/k: unsupported scheme 'abfs://'; use a path, file://, s3:// or gs://");
  CHECK(error("s3://b/k") == "s3://b/k: unsupported scheme 's3://'; use a path, file://");
}

TEST_CASE("a folder with an empty part is refused before anything is loaded") {
  CHECK(test::error_of<UserError>([] { open_remote_folder("s3://b//x"); }) ==
        "s3://b//x: not a folder name; write s3://bucket/folder");
}

TEST_CASE("a trainer without the module says how to get it") {
  // This program is in bin/ without a lib/ that holds the module, or with one: then it opens.
  const std::string error = test::error_of<RunError>([] { open_remote_folder("s3://b/x"); });
  if (error == "no error") return;
  CHECK(error ==
        "s3://b/x: this trainer was built without object stores; ./scripts/setup.sh "
        "--object-stores, then build again");
}

}  // namespace
}  // namespace ddp::train
