// The settings of an object store, from the environment alone, without network requests.
#pragma once

#include <functional>
#include <string>

namespace ddp::train {

/// The inputs of the decisions; tests supply their own.
struct Surroundings {
  /// An environment variable, empty when unset.
  std::function<std::string(const char*)> variable;
  std::function<bool(const std::string&)> file_exists;
  /// Vendor and model of the machine from its firmware: "Amazon EC2 m5.large".
  std::string machine;
};

/// Reads the current process's surroundings.
Surroundings surroundings();

struct S3Settings {
  std::string scheme = "https";
  std::string endpoint;  ///< host[:port]; empty: Amazon's own.
  std::string region;    ///< Empty: to be asked of the bucket.
  /// Whether credentials may come from the machine's metadata service, a query that takes seconds
  /// on other machines.
  bool metadata_service = false;
};

/// From AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_REGION, AWS_DEFAULT_REGION and
/// AWS_EC2_METADATA_DISABLED. Throws UserError unless the endpoint is an http(s) URL.
S3Settings s3_settings(const Surroundings& around);

struct GcsSettings {
  std::string scheme = "https";
  std::string endpoint;  ///< An emulator's address; empty: Google's own.
  bool anonymous = false;
  bool credentials_found = false;  ///< A file, or a machine of Google's with a metadata service.
};

/// From STORAGE_EMULATOR_HOST, GOOGLE_APPLICATION_CREDENTIALS and gcloud's file. Throws UserError
/// if the credentials file does not exist.
GcsSettings gcs_settings(const Surroundings& around);

/// PEM file with the certificates of the trusted authorities: AWS_CA_BUNDLE,
/// SSL_CERT_FILE, CURL_CA_BUNDLE or the distribution's; empty if none was found. The storage
/// libraries were built on another distribution and look in its place.
std::string certificate_file(const Surroundings& around);

}  // namespace ddp::train
