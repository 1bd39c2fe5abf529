#include "launcher/etcd/http_thread.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <cerrno>
#include <cstdint>
#include <map>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>

#include "launcher/base/errors.h"
#include "launcher/base/system/descriptors.h"
#include "launcher/base/system/sockets.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using Error = boost::system::error_code;
using PlainStream = beast::tcp_stream;
using TlsStream = beast::ssl_stream<beast::tcp_stream>;

constexpr std::size_t kLongest = std::size_t{1} << 20;

// The peer of a stream may be cut off: after about 11 s the connection counts as closed.
void notice_dead_peer(int socket) {
  const int on = 1, idle = 5, interval = 2, probes = 3;
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

std::string text_of(const Error& error) {
  if (error == beast::error::timeout) return "no answer";
  if (error == http::error::end_of_stream || error == asio::error::eof)
    return "it closed the connection";
  if (error.category() == http::make_error_code(http::error::bad_version).category())
    return "it does not speak HTTP";
  const bool tls = error.category() == asio::error::get_ssl_category();
  return (tls ? "TLS: " : "") + error.message();
}

asio::ssl::context tls_context(const TlsFiles& files) {
  // Its configuration may load plug-ins, which a static program must not.
  ::OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG, nullptr);
  asio::ssl::context context(asio::ssl::context::tls_client);
  context.set_verify_mode(asio::ssl::verify_peer);
  const auto check = [](const Error& error, const char* what, const std::string& file) {
    const int unreadable = ::access(file.c_str(), R_OK) == 0 ? 0 : errno;
    const std::string why = unreadable != 0 ? error_text(unreadable) : error.message();
    if (error) usage_error(fmt::format("--rdzv-conf={}={}: {}", what, file, why));
  };
  Error error;
  if (!files.ca_file.empty()) {
    context.load_verify_file(files.ca_file, error);
    check(error, "cacert", files.ca_file);
  } else {
    // The library was built for another system's paths.
    for (const char* file :
         {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"}) {
      if (::access(file, R_OK) == 0) context.load_verify_file(file, error);
    }
  }
  if (files.cert_file.empty()) return context;
  const std::string& key = files.key_file.empty() ? files.cert_file : files.key_file;
  context.use_certificate_chain_file(files.cert_file, error);
  check(error, "cert", files.cert_file);
  context.use_private_key_file(key, asio::ssl::context::pem, error);
  check(error, "key", key);
  return context;
}

/// Replies on their way from the thread to its owner.
class Mailbox {
 public:
  Mailbox() : wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (wake_.get() < 0) throw LaunchError(kExitFailed, "cannot use etcd: " + error_text(errno));
  }
  int fd() const { return wake_.get(); }
  void put(HttpReply reply) {
    const std::lock_guard lock(mutex_);
    if (reply.kind == HttpReply::Kind::kLine) {
      std::erase_if(replies_, [&](const HttpReply& one) {
        return one.id == reply.id && one.kind == HttpReply::Kind::kLine;
      });
    }
    replies_.push_back(std::move(reply));
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof one);
  }
  std::vector<HttpReply> take() {
    const std::lock_guard lock(mutex_);
    std::uint64_t count = 0;
    [[maybe_unused]] const auto got = ::read(wake_.get(), &count, sizeof count);
    return std::exchange(replies_, {});
  }

 private:
  Descriptor wake_;
  std::mutex mutex_;
  std::vector<HttpReply> replies_;
};

class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual void begin() = 0;
  virtual void cancel() = 0;
};

/// One request and its reply or replies. Lives as long as an operation of it is in progress.
template <typename Stream>
class ExchangeOver : public Exchange, public std::enable_shared_from_this<ExchangeOver<Stream>> {
 public:
  template <typename... Arguments>
  ExchangeOver(int id, HttpRequest request, Mailbox& mailbox, Arguments&&... arguments)
      : id_(id),
        request_(std::move(request)),
        mailbox_(mailbox),
        stream_(std::forward<Arguments>(arguments)...) {
    parser_.body_limit(request_.stream ? boost::none : boost::optional<std::uint64_t>(kLongest));
  }

  void begin() override {
    Error error;
    const auto address = asio::ip::make_address(request_.address, error);
    const asio::ip::tcp::endpoint place(address, static_cast<std::uint16_t>(request_.port));
    if (!error) socket().socket().open(place.protocol(), error);
    if (error) return fail(error);
    ::fcntl(socket().socket().native_handle(), F_SETFD, FD_CLOEXEC);
    socket().expires_after(request_.timeout);
    socket().async_connect(
        place, [self = this->shared_from_this()](const Error& e) { self->connected(e); });
  }

  void cancel() override {
    cancelled_ = true;
    socket().close();
  }

 private:
  beast::tcp_stream& socket() { return beast::get_lowest_layer(stream_); }

  void connected(const Error& error) {
    if (error) return fail(error);
    notice_dead_peer(socket().socket().native_handle());
    local_ = numeric_address(socket().socket().native_handle(), /*peer=*/false);
    if constexpr (std::is_same_v<Stream, TlsStream>) {
      stream_.set_verify_callback(asio::ssl::host_name_verification(request_.host));
      if (!parse_address(request_.host, 0)) {
        // What SSL_set_tlsext_host_name does, without its cast.
        ::SSL_ctrl(stream_.native_handle(), SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
                   request_.host.data());
      }
      stream_.async_handshake(
          asio::ssl::stream_base::client,
          [self = this->shared_from_this()](const Error& e) { e ? self->fail(e) : self->ask(); });
    } else {
      ask();
    }
  }

  void ask() {
    message_.method(request_.body.empty() ? http::verb::get : http::verb::post);
    message_.target(request_.path);
    message_.set(http::field::host, fmt::format("{}:{}", request_.host, request_.port));
    message_.set(http::field::content_type, "application/json");
    if (!request_.token.empty()) message_.set(http::field::authorization, request_.token);
    // A watch at a server without a leader ends.
    if (request_.stream) message_.set("Grpc-Metadata-hasleader", "true");
    message_.body() = request_.body;
    message_.keep_alive(false);
    message_.prepare_payload();
    http::async_write(stream_, message_,
                      [self = this->shared_from_this()](const Error& e, std::size_t) {
                        e ? self->fail(e) : self->read();
                      });
  }

  void read() {
    if (request_.stream && parser_.is_header_done()) socket().expires_never();
    http::async_read_some(
        stream_, buffer_, parser_,
        [self = this->shared_from_this()](const Error& e, std::size_t) { self->absorb(e); });
  }

  void absorb(const Error& error) {
    if (error) return fail(error);
    if (parser_.is_header_done() && request_.stream && parser_.get().result_int() == 200)
      pass_lines();
    if (!parser_.is_done()) return read();
    if (request_.stream && parser_.get().result_int() == 200) return fail(asio::error::eof);
    put({.id = id_,
         .kind = HttpReply::Kind::kComplete,
         .status = static_cast<int>(parser_.get().result_int()),
         .body = parser_.get().body(),
         .local_address = local_});
  }

  void pass_lines() {
    std::string& text = parser_.get().body();
    for (auto end = text.find('\n'); end != std::string::npos; end = text.find('\n')) {
      put({.id = id_,
           .kind = HttpReply::Kind::kLine,
           .status = 200,
           .body = text.substr(0, end),
           .local_address = local_});
      text.erase(0, end + 1);
    }
    if (text.size() > kLongest) cancel();
  }

  void fail(const Error& error) {
    put({.id = id_, .problem = text_of(error), .local_address = local_});
  }
  void put(HttpReply reply) {
    if (!cancelled_) mailbox_.put(std::move(reply));
  }

  int id_;
  HttpRequest request_;
  Mailbox& mailbox_;
  Stream stream_;
  http::request<http::string_body> message_;
  beast::flat_buffer buffer_;
  http::response_parser<http::string_body> parser_;
  std::string local_;
  bool cancelled_ = false;
};

}  // namespace

class HttpThread::Work {
 public:
  explicit Work(const std::optional<TlsFiles>& tls) : guard_(context_.get_executor()) {
    if (tls) tls_ = std::make_unique<asio::ssl::context>(tls_context(*tls));
    thread_ = std::thread([this] { context_.run(); });
  }
  ~Work() {
    context_.stop();
    thread_.join();
  }

  void send(int id, HttpRequest request) {
    asio::post(context_, [this, id, request = std::move(request)]() mutable {
      std::erase_if(exchanges_, [](const auto& one) { return one.second.expired(); });
      const auto exchange = make(id, std::move(request));
      exchanges_[id] = exchange;
      exchange->begin();
    });
  }
  void cancel(int id) {
    asio::post(context_, [this, id] {
      if (const auto found = exchanges_.find(id); found != exchanges_.end()) {
        if (const auto exchange = found->second.lock()) exchange->cancel();
      }
    });
  }

  Mailbox mailbox;
  int last_id = 0;

 private:
  std::shared_ptr<Exchange> make(int id, HttpRequest request) {
    if (tls_) {
      return std::make_shared<ExchangeOver<TlsStream>>(id, std::move(request), mailbox, context_,
                                                       *tls_);
    }
    return std::make_shared<ExchangeOver<PlainStream>>(id, std::move(request), mailbox, context_);
  }

  std::unique_ptr<asio::ssl::context> tls_;
  std::map<int, std::weak_ptr<Exchange>> exchanges_;  // the thread's
  asio::io_context context_{1};
  asio::executor_work_guard<asio::io_context::executor_type> guard_;
  std::thread thread_;
};

HttpThread::HttpThread(const std::optional<TlsFiles>& tls) : work_(std::make_unique<Work>(tls)) {}
HttpThread::~HttpThread() = default;

int HttpThread::send(HttpRequest request) {
  work_->send(++work_->last_id, std::move(request));
  return work_->last_id;
}

void HttpThread::cancel(int id) { work_->cancel(id); }
std::vector<HttpReply> HttpThread::take() { return work_->mailbox.take(); }
int HttpThread::fd() const { return work_->mailbox.fd(); }

}  // namespace ddp::launch
