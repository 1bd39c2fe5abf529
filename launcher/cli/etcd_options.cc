#include "launcher/cli/node_options.h"

#include <fmt/format.h>

#include <initializer_list>

#include "launcher/base/errors.h"
#include "launcher/base/text.h"
#include "launcher/cli/option_parsers.h"

namespace ddp::launch {
namespace {

constexpr int kEtcdPort = 2379;
constexpr std::size_t kMostEndpoints = 16;

using Conf = std::map<std::string, std::string>;

Endpoint take_endpoint(const std::string& option, std::string text, bool& tls) {
  if (text.starts_with("https://")) tls = true;
  if (const auto scheme = text.find("://"); scheme != std::string::npos) text.erase(0, scheme + 3);
  Endpoint endpoint = parse_endpoint(text).value_or(Endpoint{text, 0});
  if (endpoint.host.starts_with('[') && endpoint.host.ends_with(']'))
    endpoint.host = endpoint.host.substr(1, endpoint.host.size() - 2);
  if (endpoint.host.empty()) {
    usage_error(fmt::format(
        "--rdzv-endpoint={}: no host in it; is the shell variable set? HOST[:PORT],... of etcd",
        option));
  }
  if (endpoint.port == 0) endpoint.port = kEtcdPort;
  return endpoint;
}

std::vector<Endpoint> take_endpoints_of_etcd(const OptionValues& values, bool& tls) {
  const std::string& text = values.text("rdzv-endpoint");
  if (text.empty()) {
    usage_error(
        fmt::format("--rdzv-backend={}: --rdzv-endpoint is needed: HOST[:PORT],... of etcd, the "
                    "same on all nodes",
                    values.text("rdzv-backend")));
  }
  std::vector<Endpoint> endpoints;
  for (const std::string& item : split_list(text, ','))
    endpoints.push_back(take_endpoint(text, trimmed(item), tls));
  if (endpoints.size() > kMostEndpoints) {
    usage_error(fmt::format("--rdzv-endpoint={}: at most {} endpoints; 3 are enough", text,
                            kMostEndpoints));
  }
  return endpoints;
}

// The first name that is given; torchrun has two for the same thing.
std::string take(Conf& conf, std::initializer_list<const char*> names) {
  std::string value;
  for (const char* name : names) {
    const auto found = conf.find(name);
    if (found == conf.end()) continue;
    if (value.empty()) value = found->second;
    conf.erase(found);
  }
  return value;
}

void take_seconds(Conf& conf, const char* name, int least, std::chrono::milliseconds& target) {
  const std::string text = take(conf, {name});
  if (text.empty()) return;
  target = std::chrono::seconds(conf_seconds(name, text, least));
}

void take_files(Conf& conf, EtcdSettings& etcd) {
  const std::string protocol = take(conf, {"protocol"});
  if (!protocol.empty() && protocol != "http" && protocol != "https")
    usage_error(fmt::format("--rdzv-conf=protocol={}: must be http or https", protocol));
  etcd.tls = protocol.empty() ? etcd.tls : protocol == "https";
  etcd.ca_file = take(conf, {"cacert", "ca_cert"});
  etcd.cert_file = take(conf, {"cert", "ssl_cert"});
  etcd.key_file = take(conf, {"key", "ssl_cert_key"});
  if (!etcd.key_file.empty() && etcd.cert_file.empty())
    usage_error("--rdzv-conf=key=...: needs cert=FILE, the certificate that it belongs to");
  if (!etcd.tls && !(etcd.ca_file + etcd.cert_file).empty())
    usage_error("--rdzv-conf: cacert and cert are for TLS; add protocol=https");
}

void take_user(Conf& conf, EtcdSettings& etcd) {
  etcd.user = take(conf, {"user"});
  etcd.password_file = take(conf, {"password_file"});
  if (conf.count("password") > 0) {
    usage_error(
        "--rdzv-conf=password=...: other users of this machine could read it; write it to a file "
        "of yours and give password_file=FILE");
  }
  if (etcd.user.empty() != etcd.password_file.empty())
    usage_error("--rdzv-conf: user and password_file need each other");
}

}  // namespace

EtcdSettings take_etcd(const OptionValues& values, Conf& conf) {
  EtcdSettings etcd;
  etcd.endpoints = take_endpoints_of_etcd(values, etcd.tls);
  take_files(conf, etcd);
  take_user(conf, etcd);
  if (const std::string prefix = take(conf, {"etcd_prefix"}); !prefix.empty()) {
    etcd.prefix = prefix.substr(0, prefix.find_last_not_of('/') + 1);
    if (etcd.prefix.empty())
      usage_error(fmt::format("--rdzv-conf=etcd_prefix={}: must name more than the root", prefix));
  }
  take_seconds(conf, "lease_ttl", 2, etcd.lease);
  take_seconds(conf, "outage_timeout", 1, etcd.outage);
  if (etcd.outage < etcd.lease) etcd.outage = etcd.lease;
  // torchrun's name for it.
  if (const std::string timeout = take(conf, {"timeout"}); !timeout.empty())
    conf.emplace("join_timeout", timeout);
  return etcd;
}

}  // namespace ddp::launch
