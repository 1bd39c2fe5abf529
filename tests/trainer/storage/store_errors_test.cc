// The libraries' own messages, as they were seen.
#include "trainer/storage/store_errors.h"

#include "tests/support/catch.h"

namespace ddp::train {
namespace {

struct Seen {
  StoreCall call;
  const char* text;
  RemoteFailure failure;
  const char* line;
};

TEST_CASE("a library's message becomes one line, its kind and the remedy") {
  const Seen seen[] = {
      {StoreCall::kUpload,
       "IOError: When initiating multiple part upload for key 'x/a' in bucket 'nobucket': AWS "
       "Error "
       "NO_SUCH_BUCKET during CreateMultipartUpload operation: The specified bucket does not exist "
       "(Request ID: hKbkz)",
       RemoteFailure::kRefused,
       "s3://nobucket/x/a: NO_SUCH_BUCKET (CreateMultipartUpload): The specified bucket does not "
       "exist; create the bucket or fix its name"},
      {StoreCall::kList,
       "IOError: When listing objects under key 'x/' in bucket 'b': AWS Error NETWORK_CONNECTION "
       "during ListObjectsV2 operation: curlCode: 7, Could not connect to server; Details: Failed "
       "to connect to 127.0.0.1:5999 after 0 ms: Could not connect to server",
       RemoteFailure::kAway,
       "s3://nobucket/x/a: NETWORK_CONNECTION (ListObjectsV2): Failed to connect to "
       "127.0.0.1:5999 after 0 ms: Could not connect to server"},
      {StoreCall::kUpload,
       "IOError: When getting information for bucket 'b': AWS Error UNKNOWN (HTTP status 403) "
       "during HeadBucket operation: No response body.",
       RemoteFailure::kRefused,
       "s3://nobucket/x/a: UNKNOWN (HTTP status 403) (HeadBucket): No response body; the "
       "credentials need permission to read, write, list and delete there"},
      {StoreCall::kUpload,
       "IOError: When completing: AWS Error SLOW_DOWN during UploadPart operation: Please reduce",
       RemoteFailure::kAway, "s3://nobucket/x/a: SLOW_DOWN (UploadPart): Please reduce"},
      {StoreCall::kDownload,
       "IOError: AWS Error NO_SUCH_KEY during GetObject operation: The specified key\ndoes not "
       "exist.",
       RemoteFailure::kMissing,
       "s3://nobucket/x/a: NO_SUCH_KEY (GetObject): The specified key does not exist"},
      {StoreCall::kDownload,
       "IOError: Path does not exist 'b/x/none'. Detail: [errno 2] No such file or directory",
       RemoteFailure::kMissing, "s3://nobucket/x/a: no such object"},
      {StoreCall::kUpload,
       "IOError: google::cloud::Status(NOT_FOUND: Permanent error, with a last message of Received "
       "HTTP status code: 404 error_info={reason=, domain=, metadata={}}). Detail: [errno 2] No "
       "such file or directory",
       RemoteFailure::kRefused,
       "s3://nobucket/x/a: NOT_FOUND: Received HTTP status code: 404; create the bucket or fix its "
       "name"},
      {StoreCall::kUpload, "Out of memory", RemoteFailure::kAway,
       "s3://nobucket/x/a: Out of memory"},
      {StoreCall::kUpload, "", RemoteFailure::kAway, "s3://nobucket/x/a: "},
      {StoreCall::kUpload, "AWS Error ", RemoteFailure::kAway, nullptr},
      {StoreCall::kUpload, "google::cloud::Status(", RemoteFailure::kAway, nullptr},
  };
  for (const Seen& one : seen) {
    CAPTURE(one.text);
    const RemoteError error = store_error(one.call, "s3://nobucket/x/a", one.text);
    CHECK(error.failure() == one.failure);
    if (one.line != nullptr) CHECK(std::string(error.what()) == one.line);
  }
}

}  // namespace
}  // namespace ddp::train
