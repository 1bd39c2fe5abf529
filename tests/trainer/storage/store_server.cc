#include "tests/trainer/storage/store_server.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "tests/support/loopback.h"

namespace ddp::train::test {

StoreServer::StoreServer(const std::string& kind, std::vector<std::string> options)
    : kind_(kind), options_(std::move(options)) {
  start(ddp::test::unused_port());  // none that a client may get while the store is away
}

void StoreServer::start(int port) {
  ddp::test::ChildOptions child;
  child.argv = {DDP_STORE_PYTHON,    "-B", DDP_STORE_SERVER, kind_ == "s3" ? "s3" : "gcs", "--port",
                std::to_string(port)};
  child.argv.insert(child.argv.end(), options_.begin(), options_.end());
  process_ = std::make_unique<ddp::test::ChildProgram>(child);
  const std::string line = process_->wait_for(" ");
  if (line.rfind("skipped", 0) == 0) {
    std::printf("[skipped] %s\n", line.c_str());
    std::exit(0);
  }
  port_ = std::stoi(line.substr(line.find(' ') + 1));
}

void StoreServer::kill() {
  process_->signal(SIGKILL);
  process_->wait_exit();
}

void StoreServer::come_back() { start(port_); }

std::map<std::string, std::string> StoreServer::environment() const {
  if (kind_ == "s3") {
    return {{"AWS_ENDPOINT_URL_S3", endpoint()},
            {"AWS_ACCESS_KEY_ID", "key"},
            {"AWS_SECRET_ACCESS_KEY", "secret"}};
  }
  return {{"STORAGE_EMULATOR_HOST", endpoint()}};
}

std::unique_ptr<RemoteFolder> StoreServer::open(const std::string& name) const {
  for (const auto& [variable, value] : environment()) ::setenv(variable.c_str(), value.c_str(), 1);
  return open_remote_folder(folder(name));
}

}  // namespace ddp::train::test
