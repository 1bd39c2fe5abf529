#include "trainer/storage/store_settings.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

struct Server {
  std::string scheme;
  std::string host;
};

/// `variable` is what the message names; `bare_scheme` holds for a host without one, empty:
/// refused.
Server parse_server(const char* variable, const std::string& text, const std::string& bare_scheme) {
  const std::size_t mark = text.find("://");
  Server server{bare_scheme, text};
  if (mark != std::string::npos) server = {text.substr(0, mark), text.substr(mark + 3)};
  while (server.host.ends_with('/')) server.host.pop_back();
  const bool known = server.scheme == "http" || server.scheme == "https";
  if (!known || server.host.empty() || server.host.find_first_of("/?#@ ") != std::string::npos) {
    throw UserError(fmt::format("{}={}: not a server URL; write http://host:port or https://host",
                                variable, text));
  }
  return server;
}

bool is_true(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text == "true" || text == "1";
}

bool has_machine(const Surroundings& around, const char* name) {
  return around.machine.find(name) != std::string::npos;
}

/// Where gcloud keeps what `gcloud auth application-default login` got.
std::string gcloud_file(const Surroundings& around) {
  constexpr const char* kName = "application_default_credentials.json";
  if (const std::string folder = around.variable("CLOUDSDK_CONFIG"); !folder.empty())
    return folder + "/" + kName;
  return around.variable("HOME") + "/.config/gcloud/" + kName;
}

std::string first_line(const char* file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

}  // namespace

Surroundings surroundings() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  const auto exists = [](const std::string& file) {
    std::error_code ignored;
    return std::filesystem::exists(file, ignored);
  };
  const std::string firmware = "/sys/class/dmi/id/";
  return {variable, exists,
          first_line((firmware + "sys_vendor").c_str()) + " " +
              first_line((firmware + "product_name").c_str())};
}

S3Settings s3_settings(const Surroundings& around) {
  S3Settings settings;
  for (const char* name : {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}) {
    const std::string url = around.variable(name);
    if (url.empty()) continue;
    const Server server = parse_server(name, url, "");
    settings.scheme = server.scheme;
    settings.endpoint = server.host;
    break;
  }
  settings.region = around.variable("AWS_REGION");
  if (settings.region.empty()) settings.region = around.variable("AWS_DEFAULT_REGION");
  // A server of one's own has no regions, but a request is signed for one.
  if (settings.region.empty() && !settings.endpoint.empty()) settings.region = "us-east-1";
  const bool address_given = !around.variable("AWS_EC2_METADATA_SERVICE_ENDPOINT").empty();
  settings.metadata_service = !is_true(around.variable("AWS_EC2_METADATA_DISABLED")) &&
                              (address_given || has_machine(around, "Amazon"));
  return settings;
}

GcsSettings gcs_settings(const Surroundings& around) {
  GcsSettings settings;
  constexpr const char* kEmulator = "STORAGE_EMULATOR_HOST";
  if (const std::string host = around.variable(kEmulator); !host.empty()) {
    const Server server = parse_server(kEmulator, host, "http");
    return {server.scheme, server.host, true, true};
  }
  constexpr const char* kFile = "GOOGLE_APPLICATION_CREDENTIALS";
  if (const std::string file = around.variable(kFile); !file.empty()) {
    if (!around.file_exists(file)) throw UserError(fmt::format("{}={}: no such file", kFile, file));
    settings.credentials_found = true;
  }
  settings.credentials_found =
      settings.credentials_found || around.file_exists(gcloud_file(around)) ||
      has_machine(around, "Google") || !around.variable("GCE_METADATA_HOST").empty() ||
      !around.variable("GCE_METADATA_ROOT").empty();
  return settings;
}

std::string certificate_file(const Surroundings& around) {
  for (const char* name : {"AWS_CA_BUNDLE", "SSL_CERT_FILE", "CURL_CA_BUNDLE"}) {
    if (std::string file = around.variable(name); !file.empty()) return file;
  }
  for (const char* file : {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                           "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}) {
    if (around.file_exists(file)) return file;
  }
  return "";
}

}  // namespace ddp::train
