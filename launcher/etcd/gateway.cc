#include "launcher/etcd/gateway.h"

#include <openssl/evp.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "launcher/base/text.h"

namespace ddp::launch {
namespace {

using Json = nlohmann::json;

std::string encoded(const std::string& text) {
  std::string out(4 * ((text.size() + 2) / 3) + 1, '\0');
  const int size = ::EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                     reinterpret_cast<const unsigned char*>(text.data()),
                                     static_cast<int>(text.size()));
  out.resize(static_cast<std::size_t>(size));
  return out;
}

std::string decoded(const std::string& text) {
  std::string out(3 * (text.size() / 4) + 3, '\0');
  const int size = ::EVP_DecodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                     reinterpret_cast<const unsigned char*>(text.data()),
                                     static_cast<int>(text.size()));
  const auto padding = text.size() - text.find_last_not_of('=') - 1;
  out.resize(size < static_cast<int>(padding) ? 0 : static_cast<std::size_t>(size) - padding);
  return out;
}

// The first key after all with this prefix.
std::string end_of(std::string prefix) {
  ++prefix.back();
  return prefix;
}

// Absent fields are zero.
std::int64_t number(const Json& object, const char* name) {
  if (!object.is_object()) throw std::invalid_argument("no object");
  const auto found = object.find(name);
  if (found == object.end()) return 0;
  if (found->is_number_integer()) return found->get<std::int64_t>();
  const auto value = number_in<std::int64_t>(found->get_ref<const std::string&>());
  if (!value) throw std::invalid_argument("not a number");
  return *value;
}

std::string text(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() ? "" : found->get<std::string>();
}

template <typename Parse>
auto parsed(std::string_view body, Parse parse) noexcept -> std::optional<decltype(parse(Json()))> {
  try {
    const Json json = Json::parse(body);
    if (json.is_object()) return parse(json);
  } catch (const std::exception&) {
  }
  return std::nullopt;
}

}  // namespace

std::string range_request(const std::string& prefix) {
  return Json{{"key", encoded(prefix)}, {"range_end", encoded(end_of(prefix))}}.dump();
}

std::string transaction_request(const std::vector<EtcdCondition>& conditions,
                                const std::vector<EtcdPut>& puts,
                                const std::string& erased_prefix) {
  Json request{{"compare", Json::array()}, {"success", Json::array()}};
  for (const EtcdCondition& one : conditions) {
    request["compare"].push_back({{"key", encoded(one.key)},
                                  {"target", "MOD"},
                                  {"result", "EQUAL"},
                                  {"mod_revision", std::to_string(one.modified)}});
  }
  for (const EtcdPut& one : puts) {
    request["success"].push_back({{"request_put",
                                   {{"key", encoded(one.key)},
                                    {"value", encoded(one.value)},
                                    {"lease", std::to_string(one.lease)}}}});
  }
  if (!erased_prefix.empty()) {
    request["success"].push_back(
        {{"request_delete_range",
          {{"key", encoded(erased_prefix)}, {"range_end", encoded(end_of(erased_prefix))}}}});
  }
  return request.dump();
}

std::string grant_request(std::int64_t seconds) {
  return Json{{"TTL", std::to_string(seconds)}}.dump();
}

std::string lease_request(std::int64_t lease) { return Json{{"ID", std::to_string(lease)}}.dump(); }

std::string watch_request(const std::string& prefix, std::int64_t revision) {
  return Json{{"create_request",
               {{"key", encoded(prefix)},
                {"range_end", encoded(end_of(prefix))},
                {"start_revision", std::to_string(revision + 1)}}}}
      .dump();
}

std::string login_request(const std::string& user, const std::string& password) {
  return Json{{"name", user}, {"password", password}}.dump();
}

std::optional<EtcdRange> parse_range(std::string_view body) noexcept {
  return parsed(body, [](const Json& json) {
    EtcdRange range{.revision = number(json.at("header"), "revision")};
    const auto keys = json.find("kvs");
    if (keys == json.end()) return range;
    for (const Json& one : *keys) {
      range.keys.push_back({.key = decoded(text(one, "key")),
                            .value = decoded(text(one, "value")),
                            .modified = number(one, "mod_revision")});
    }
    return range;
  });
}

std::optional<EtcdTransaction> parse_transaction(std::string_view body) noexcept {
  return parsed(body, [](const Json& json) {
    return EtcdTransaction{json.value("succeeded", false), number(json.at("header"), "revision")};
  });
}

std::optional<EtcdLease> parse_lease(std::string_view body) noexcept {
  return parsed(body, [](const Json& json) {
    const auto stream = json.find("result");
    const Json& lease = stream == json.end() ? json : *stream;
    return EtcdLease{number(lease, "ID"), number(lease, "TTL")};
  });
}

std::optional<std::string> parse_token(std::string_view body) noexcept {
  return parsed(body, [](const Json& json) { return json.at("token").get<std::string>(); });
}

bool watch_continues(std::string_view line) noexcept {
  return parsed(line, [](const Json& json) { return !json.at("result").value("canceled", false); })
      .value_or(false);
}

std::string parse_problem(std::string_view body) noexcept {
  return parsed(body,
                [](const Json& json) {
                  const auto error = json.find("error");
                  if (error == json.end()) return text(json, "message");
                  return error->is_string() ? error->get<std::string>() : text(*error, "message");
                })
      .value_or("");
}

std::optional<std::string> parse_version(std::string_view body) noexcept {
  return parsed(body, [](const Json& json) { return json.at("etcdserver").get<std::string>(); });
}

bool has_gateway(const std::string& version) {
  int major = 0, minor = 0;
  const char* const end = version.data() + version.size();
  const auto [dot, error] = std::from_chars(version.data(), end, major);
  if (error != std::errc() || dot == end || *dot != '.') return false;
  if (std::from_chars(dot + 1, end, minor).ec != std::errc()) return false;
  return major > 3 || (major == 3 && minor >= 4);
}

}  // namespace ddp::launch
