// HTTP/1.1 requests over TCP or TLS, each on its own connection, in a separate thread: the
// owner sends requests, polls fd(), takes replies, and never blocks. Supports numeric addresses
// only.
//
// Memory is bounded: a reply or a line of a stream has at most 1 MiB, and of each stream only the
// latest line is kept until it is taken.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ddp::launch {

struct TlsFiles {
  std::string ca_file{};    // empty: the system's certificates
  std::string cert_file{};  // empty: no client certificate
  std::string key_file{};   // empty: in cert_file
};

struct HttpRequest {
  std::string host{};     // for the Host header and the server's certificate
  std::string address{};  // numeric
  int port = 0;
  std::string path{};
  std::string body{};                        // JSON; empty: GET
  std::string token{};                       // Authorization header; empty: none
  std::chrono::milliseconds timeout{3'000};  // of the whole request; of a stream: until it begins
  bool stream = false;                       // the reply is lines of JSON without end
};

struct HttpReply {
  enum class Kind {
    kComplete,  // status, body
    kLine,      // of a stream: body
    kFailed,    // problem; a stream that has ended, too
  };
  int id = 0;
  Kind kind = Kind::kFailed;
  int status = 0;
  std::string body{};
  std::string problem{};        // "Connection refused", "TLS: certificate verify failed"
  std::string local_address{};  // of the connection; empty: none was made
};

class HttpThread {
 public:
  /// `tls`: nullopt: plain TCP. Throws LaunchError if a certificate cannot be used.
  explicit HttpThread(const std::optional<TlsFiles>& tls);
  /// Abandons requests in progress without waiting for the network.
  ~HttpThread();

  /// Returns the id of its replies.
  int send(HttpRequest request);
  /// Cancels a request: no further replies to it arrive.
  void cancel(int id);
  std::vector<HttpReply> take();
  /// A descriptor that is readable when there are replies.
  int fd() const;

 private:
  class Work;
  std::unique_ptr<Work> work_;
};

}  // namespace ddp::launch
