// Whatever three clients send to the workers' store: what it holds stays bounded and is all given
// back, one answer at most goes to who waits, and requests come out alike however they are cut.
// Input: for each piece one byte (whose, how long), then the piece.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/store/key_values.h"
#include "tests/fuzz/check.h"
#include "tests/launcher/store/request_bytes.h"

using namespace ddp::launch;

namespace {

constexpr std::size_t kClients = 3;

StoreLimits small_limits() {
  StoreLimits limits;
  limits.key = 64;
  limits.value = 256;
  limits.keys_per_message = 16;
  limits.message = 1024;
  limits.contents = 8192;
  return limits;
}

struct Client {
  RequestParser parser{small_limits()};
  bool open = true;
};

std::string greeting() { return encode({QueryType::kValidate, {}, {}, kTcpStoreMagic}); }

void carry_out(std::size_t number, std::array<Client, kClients>& clients, KeyValues& contents) {
  Request request;
  std::vector<KeyValues::Answer> answers;
  while (clients.at(number).open) {
    const auto next = clients.at(number).parser.next(request);
    if (next == RequestParser::Next::kNeedsMoreBytes) return;
    answers.clear();
    const bool done = next == RequestParser::Next::kComplete &&
                      contents.apply(number, std::move(request), answers);
    for (const auto& answer : answers) {
      FUZZ_CHECK(answer.to < kClients && clients.at(answer.to).open);
      FUZZ_CHECK(answer.bytes.size() <= small_limits().message + 8);
      FUZZ_CHECK(answer.to == number || answer.bytes == std::string(1, kStopWaiting));
    }
    FUZZ_CHECK(contents.bytes() <= small_limits().contents);
    clients.at(number).open = done;
    if (!done) contents.forget(number);
  }
}

// Encoded, and whether it ended badly.
std::string all_requests(std::string_view bytes, std::size_t piece) {
  RequestParser parser(small_limits());
  std::string all;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    parser.feed(bytes.substr(at, piece));
    Request request;
    auto next = RequestParser::Next::kComplete;
    while ((next = parser.next(request)) == RequestParser::Next::kComplete) all += encode(request);
    FUZZ_CHECK(parser.buffered() <= bytes.size() + small_limits().message);
    if (next == RequestParser::Next::kMalformed) return all + "malformed";
  }
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  KeyValues contents(small_limits());
  std::array<Client, kClients> clients;
  for (std::size_t number = 0; number < kClients; ++number) {
    clients.at(number).parser.feed(greeting());
  }
  for (std::size_t at = 0; at < input.size();) {
    const auto head = static_cast<std::uint8_t>(input[at++]);
    const std::string_view piece = input.substr(at, std::size_t{head} / kClients);
    at += piece.size();
    clients.at(head % kClients).parser.feed(piece);
    carry_out(head % kClients, clients, contents);
  }
  for (std::size_t number = 0; number < kClients; ++number) contents.forget(number);
  FUZZ_CHECK(contents.waiting() == 0);

  const std::string stream = greeting() + std::string(input);
  const std::string whole = all_requests(stream, stream.size());
  FUZZ_CHECK(all_requests(stream, 1) == whole && all_requests(stream, 7) == whole);
  return 0;
}
