#include "trainer/storage/store_settings.h"

#include <map>
#include <set>
#include "tests/support/catch.h"

#include "tests/trainer/config/test_files.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

struct World {
  std::map<std::string, std::string> variables;
  std::set<std::string> files;
  std::string machine = "Debian Notebook";

  Surroundings around() const {
    return {[this](const char* name) {
              const auto at = variables.find(name);
              return at == variables.end() ? std::string() : at->second;
            },
            [this](const std::string& file) { return files.count(file) > 0; }, machine};
  }
};

TEST_CASE("without settings S3 is Amazon's, its region is asked for, no metadata service is") {
  const S3Settings s3 = s3_settings(World{}.around());
  CHECK(s3.scheme == "https");
  CHECK(s3.endpoint.empty());
  CHECK(s3.region.empty());
  CHECK_FALSE(s3.metadata_service);
}

TEST_CASE("the endpoint for S3 goes before the one for all of AWS") {
  World world{{{"AWS_ENDPOINT_URL", "https://all:1"}}, {}, ""};
  CHECK(s3_settings(world.around()).endpoint == "all:1");
  world.variables["AWS_ENDPOINT_URL_S3"] = "http://store:9000/";
  const S3Settings s3 = s3_settings(world.around());
  CHECK(s3.scheme == "http");
  CHECK(s3.endpoint == "store:9000");
  CHECK(s3.region == "us-east-1");
}

TEST_CASE("the region is the first variable that is set") {
  World world{{{"AWS_DEFAULT_REGION", "eu-1"}}, {}, ""};
  CHECK(s3_settings(world.around()).region == "eu-1");
  world.variables["AWS_REGION"] = "eu-2";
  CHECK(s3_settings(world.around()).region == "eu-2");
}

TEST_CASE("an endpoint that is no server is named with its variable") {
  for (const char* url : {"store:9000", "ftp://store", "http://", "http://a/b", "http://a b"}) {
    const World world{{{"AWS_ENDPOINT_URL", url}}, {}, ""};
    CHECK(test::error_of<UserError>([&] { s3_settings(world.around()); }) ==
          "AWS_ENDPOINT_URL=" + std::string(url) +
              ": not a server URL; write http://host:port or https://host");
  }
}

TEST_CASE("the metadata service is asked on Amazon's machines, unless it is switched off") {
  World world{{}, {}, "Amazon EC2 m5.large"};
  CHECK(s3_settings(world.around()).metadata_service);
  world.variables["AWS_EC2_METADATA_DISABLED"] = "True";
  CHECK_FALSE(s3_settings(world.around()).metadata_service);
  const World told{{{"AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://a"}}, {}, ""};
  CHECK(s3_settings(told.around()).metadata_service);
}

TEST_CASE("an emulator of Google's storage takes no credentials") {
  World world{{{"STORAGE_EMULATOR_HOST", "http://localhost:9023"}}, {}, ""};
  CHECK(gcs_settings(world.around()).endpoint == "localhost:9023");
  world.variables["STORAGE_EMULATOR_HOST"] = "localhost:9023";
  const GcsSettings gcs = gcs_settings(world.around());
  CHECK(gcs.scheme == "http");
  CHECK(gcs.endpoint == "localhost:9023");
  CHECK(gcs.anonymous);
}

TEST_CASE("Google's credentials come from a file or from a machine of Google's") {
  World world{{{"HOME", "/h"}}, {}, "Debian"};
  CHECK_FALSE(gcs_settings(world.around()).credentials_found);
  world.machine = "Google Google Compute Engine";
  CHECK(gcs_settings(world.around()).credentials_found);
  world.machine = "";
  world.files = {"/h/.config/gcloud/application_default_credentials.json"};
  CHECK(gcs_settings(world.around()).credentials_found);
  CHECK_FALSE(gcs_settings(world.around()).anonymous);
  world.variables["CLOUDSDK_CONFIG"] = "/elsewhere";
  CHECK_FALSE(gcs_settings(world.around()).credentials_found);
  world.variables["GOOGLE_APPLICATION_CREDENTIALS"] = "/k.json";
  CHECK(test::error_of<UserError>([&] { gcs_settings(world.around()); }) ==
        "GOOGLE_APPLICATION_CREDENTIALS=/k.json: no such file");
  world.files.insert("/k.json");
  CHECK(gcs_settings(world.around()).credentials_found);
}

TEST_CASE("the trusted authorities are the ones asked for, else the distribution's") {
  World world;
  CHECK(certificate_file(world.around()).empty());
  world.files = {"/etc/pki/tls/certs/ca-bundle.crt"};
  CHECK(certificate_file(world.around()) == "/etc/pki/tls/certs/ca-bundle.crt");
  world.variables["SSL_CERT_FILE"] = "/mine.pem";
  CHECK(certificate_file(world.around()) == "/mine.pem");
}

}  // namespace
}  // namespace ddp::train
