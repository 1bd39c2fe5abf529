// A real object store as a child process, and a client of it.
#pragma once

#include <memory>
#include <string>

#include "tests/support/child_program.h"
#include "trainer/storage/remote_folder.h"

namespace ddp::train::test {

/// moto (S3) or gcp-storage-emulator with the bucket `bucket`, at a port of its own.
class StoreServer {
 public:
  /// `kind` is "s3" or "gs"; `options` as store_server.py takes them. Ends the test with the word
  /// [skipped] when its packages are not installed.
  explicit StoreServer(const std::string& kind, std::vector<std::string> options = {});

  std::string folder(const std::string& name) const { return kind_ + "://bucket/" + name; }
  std::string endpoint() const { return "http://127.0.0.1:" + std::to_string(port_); }
  /// For a client of this store alone: endpoint and, for S3, some key.
  std::map<std::string, std::string> environment() const;
  /// The same for this process, and the folder `name` opened.
  std::unique_ptr<RemoteFolder> open(const std::string& name) const;

  void signal(int number) const { process_->signal(number); }
  /// SIGKILL; all that was stored is lost.
  void kill();
  /// Starts an empty store at the same port.
  void come_back();

 private:
  void start(int port);

  std::string kind_;
  std::vector<std::string> options_;
  int port_ = 0;
  std::unique_ptr<ddp::test::ChildProgram> process_;
};

}  // namespace ddp::train::test
