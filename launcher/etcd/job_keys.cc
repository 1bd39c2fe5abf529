#include "launcher/etcd/job_keys.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "launcher/base/system/sockets.h"

namespace ddp::launch {
namespace {

using Json = nlohmann::json;

Json place_json(const std::string& id, const Place& place) {
  return {{"id", id}, {"address", place.address}, {"port", place.port}};
}

Place place_of(const Json& json) {
  const Place place{json.at("address").get<std::string>(), json.at("port").get<int>()};
  const bool valid = parse_address(place.address, 0) && place.port > 0 && place.port <= 65535;
  if (!valid) throw std::invalid_argument("no place");
  return place;
}

HostKey parse_host(const EtcdKey& key) {
  const Json json = Json::parse(key.value);
  return {
      .id = json.at("id").get<std::string>(), .place = place_of(json), .modified = key.modified};
}

EpochKey parse_epoch(const EtcdKey& key) {
  const Json json = Json::parse(key.value);
  EpochKey epoch{.epoch = json.at("epoch").get<long long>(),
                 .host_id = json.at("host").get<std::string>(),
                 .modified = key.modified};
  if (epoch.epoch < 0) throw std::invalid_argument("no epoch");
  for (const Json& node : json.at("nodes")) {
    if (epoch.nodes.size() >= EpochKey::kMostNodes) break;
    epoch.nodes.push_back({node.at("id").get<std::string>(), place_of(node)});
  }
  return epoch;
}

}  // namespace

std::string job_prefix(const std::string& prefix, const std::string& run_id) {
  std::string id;
  for (const char c : run_id) id += c == '/' ? "%2F" : c == '%' ? "%25" : std::string(1, c);
  return prefix + "/" + id + "/";
}

std::string host_text(const HostKey& host) { return place_json(host.id, host.place).dump(); }

std::string epoch_text(const EpochKey& epoch) {
  Json nodes = Json::array();
  for (std::size_t i = 0; i < std::min(epoch.nodes.size(), EpochKey::kMostNodes); ++i)
    nodes.push_back(place_json(epoch.nodes[i].id, epoch.nodes[i].place));
  return Json{{"epoch", epoch.epoch}, {"host", epoch.host_id}, {"nodes", nodes}}.dump();
}

std::optional<JobKeys> job_keys(const EtcdRange& range, const std::string& prefix) noexcept {
  try {
    JobKeys keys{.revision = range.revision};
    for (const EtcdKey& key : range.keys) {
      if (key.key == prefix + "host") keys.host = parse_host(key);
      if (key.key == prefix + "epoch") keys.epoch = parse_epoch(key);
    }
    return keys;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

}  // namespace ddp::launch
