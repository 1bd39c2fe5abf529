#include "trainer/storage/store_errors.h"

#include <fmt/format.h>

#include <array>

namespace ddp::train {
namespace {

constexpr std::string_view kAws = "AWS Error ";
constexpr std::string_view kGoogle = "google::cloud::Status(";

struct Known {
  std::string_view code;  // as the library writes it
  RemoteFailure failure;
  std::string_view remedy;
};

constexpr std::string_view kMakeBucket = "create the bucket or fix its name";
constexpr std::string_view kAskPermission =
    "the credentials need permission to read, write, list and delete there";
constexpr std::string_view kAwsKeys =
    "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN or the profile";
constexpr std::string_view kGoogleKeys = "check GOOGLE_APPLICATION_CREDENTIALS";
constexpr std::string_view kRegion = "set AWS_REGION to the bucket's region";

constexpr std::array kAwsCodes = {
    Known{"NO_SUCH_BUCKET", RemoteFailure::kRefused, kMakeBucket},
    Known{"NO_SUCH_KEY", RemoteFailure::kMissing, ""},
    Known{"RESOURCE_NOT_FOUND", RemoteFailure::kMissing, ""},
    Known{"ACCESS_DENIED", RemoteFailure::kRefused, kAskPermission},
    Known{"INVALID_ACCESS_KEY_ID", RemoteFailure::kRefused, kAwsKeys},
    Known{"INVALID_CLIENT_TOKEN_ID", RemoteFailure::kRefused, kAwsKeys},
    Known{"UNRECOGNIZED_CLIENT", RemoteFailure::kRefused, kAwsKeys},
    Known{"MISSING_AUTHENTICATION_TOKEN", RemoteFailure::kRefused, kAwsKeys},
    Known{"INVALID_SIGNATURE", RemoteFailure::kRefused, kAwsKeys},
    Known{"SIGNATURE_DOES_NOT_MATCH", RemoteFailure::kRefused, kAwsKeys},
    Known{"OPT_IN_REQUIRED", RemoteFailure::kRefused, kAwsKeys},
    Known{"HTTP status 301", RemoteFailure::kRefused, kRegion},
    Known{"HTTP status 400", RemoteFailure::kRefused, kAwsKeys},
    Known{"HTTP status 401", RemoteFailure::kRefused, kAwsKeys},
    Known{"HTTP status 403", RemoteFailure::kRefused, kAskPermission},
};

constexpr std::array kGoogleCodes = {
    Known{"NOT_FOUND", RemoteFailure::kMissing, ""},
    Known{"PERMISSION_DENIED", RemoteFailure::kRefused, kAskPermission},
    Known{"UNAUTHENTICATED", RemoteFailure::kRefused, kGoogleKeys},
    Known{"INVALID_ARGUMENT", RemoteFailure::kRefused, kGoogleKeys},
    Known{"FAILED_PRECONDITION", RemoteFailure::kRefused, ""},
};

template <std::size_t N>
Known look_up(const std::array<Known, N>& table, std::string_view head) {
  for (const Known& known : table) {
    if (head.find(known.code) != std::string_view::npos) return known;
  }
  return {"", RemoteFailure::kAway, ""};
}

std::string_view up_to(std::string_view text, std::string_view end) {
  return text.substr(0, text.find(end));
}

std::string_view behind(std::string_view text, std::string_view start) {
  const std::size_t at = text.find(start);
  return at == std::string_view::npos ? text : text.substr(at + start.size());
}

/// Newlines and tabs would break the one line that an error has.
std::string first_words_of(std::string_view text) {
  std::string line(text);
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  while (line.ends_with(' ') || line.ends_with('.')) line.pop_back();
  return line;
}

/// `NO_SUCH_BUCKET during ListObjectsV2 operation: The bucket does not exist (Request ID: X)`, also
/// `UNKNOWN (HTTP status 403) during ...`.
std::string shorten_aws(std::string_view text) {
  const std::string_view code = up_to(text, " during ");
  const std::string_view operation = up_to(behind(text, " during "), " operation");
  std::string_view reason = up_to(behind(text, " operation: "), " (Request ID");
  reason = behind(reason, "; Details: ");  // curl says it twice
  return fmt::format("{} ({}): {}", code, operation, reason);
}

/// `NOT_FOUND: Permanent error, with a last message of REASON error_info={...})`.
std::string shorten_google(std::string_view text) {
  const std::string_view code = up_to(text, ": ");
  std::string_view reason = behind(behind(text, ": "), "with a last message of ");
  reason = up_to(reason, " error_info=");
  if (reason.ends_with(')')) reason.remove_suffix(1);
  return fmt::format("{}: {}", code, reason);
}

/// A bucket is what an upload or a listing does not find; an object, what a download does not.
Known in_its_call(Known known, StoreCall call) {
  const bool wants_bucket = call == StoreCall::kUpload || call == StoreCall::kList;
  if (known.failure != RemoteFailure::kMissing || !wants_bucket) return known;
  return {known.code, RemoteFailure::kRefused, kMakeBucket};
}

}  // namespace

RemoteError store_error(StoreCall call, const std::string& place, std::string_view text) {
  Known known{"", RemoteFailure::kAway, ""};
  std::string reason(text);
  if (const std::size_t aws = text.find(kAws); aws != std::string_view::npos) {
    const std::string_view rest = text.substr(aws + kAws.size());
    known = look_up(kAwsCodes, up_to(rest, " during "));
    reason = shorten_aws(rest);
  } else if (const std::size_t google = text.find(kGoogle); google != std::string_view::npos) {
    const std::string_view rest = text.substr(google + kGoogle.size());
    known = look_up(kGoogleCodes, up_to(rest, ":"));
    reason = shorten_google(rest);
  } else if (text.find("[errno 2]") != std::string_view::npos) {
    known = {"", RemoteFailure::kMissing, ""};
    reason = "no such object";
  }
  known = in_its_call(known, call);
  std::string line = fmt::format("{}: {}", place, first_words_of(reason));
  if (!known.remedy.empty()) line += fmt::format("; {}", known.remedy);
  return {known.failure, line};
}

}  // namespace ddp::train
