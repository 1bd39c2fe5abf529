// Encodes and parses the JSON of etcd's gateway (API v3, etcd 3.4 and newer). Pure. Keys and values
// are in base64, integers are strings. See etcd's api/etcdserverpb/rpc.proto.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::launch {

struct EtcdKey {
  std::string key;
  std::string value;
  std::int64_t modified = 0;  // revision of the last change
};

/// A condition of a transaction: the key was last changed at this revision; 0: it does not exist.
struct EtcdCondition {
  std::string key;
  std::int64_t modified = 0;
};

struct EtcdPut {
  std::string key;
  std::string value;
  std::int64_t lease = 0;  // 0: none
};

// Bodies of requests. `prefix`: common to all keys concerned.
std::string range_request(const std::string& prefix);
/// If all conditions hold: puts, or deletes every key with `erased_prefix` unless it is empty.
std::string transaction_request(const std::vector<EtcdCondition>& conditions,
                                const std::vector<EtcdPut>& puts, const std::string& erased_prefix);
std::string grant_request(std::int64_t seconds);
std::string lease_request(std::int64_t lease);
/// Watches every change after `revision`.
std::string watch_request(const std::string& prefix, std::int64_t revision);
std::string login_request(const std::string& user, const std::string& password);

// Replies; nullopt: malformed.
struct EtcdRange {
  std::int64_t revision = 0;  // of the store
  std::vector<EtcdKey> keys{};
};
std::optional<EtcdRange> parse_range(std::string_view body) noexcept;
struct EtcdTransaction {
  bool done = false;          // its conditions held
  std::int64_t revision = 0;  // of the keys that were put
};
std::optional<EtcdTransaction> parse_transaction(std::string_view body) noexcept;
struct EtcdLease {
  std::int64_t id = 0;
  std::int64_t seconds = 0;  // left; 0: it has run out
};
/// Parses the reply to a grant or a renewal.
std::optional<EtcdLease> parse_lease(std::string_view body) noexcept;
std::optional<std::string> parse_token(std::string_view body) noexcept;
/// Whether the watch continues after this line.
bool watch_continues(std::string_view line) noexcept;
/// "etcdserver: permission denied"; empty: there is no error text in it.
std::string parse_problem(std::string_view body) noexcept;
/// "3.4.23", from GET /version; nullopt: it is not etcd's.
std::optional<std::string> parse_version(std::string_view body) noexcept;
/// Whether a server of this version has the gateway at /v3.
bool has_gateway(const std::string& version);

}  // namespace ddp::launch
