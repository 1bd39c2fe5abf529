#include "launcher/etcd/job_keys.h"

#include <climits>

#include "launcher/base/system/sockets.h"
#include "launcher/rendezvous/wire/control_fields.h"

namespace ddp::launch {

static void fields(Fields& io, HostKey& host) {
  io.text("id", host.id);
  io.text("address", host.place.address);
  io.number("port", host.place.port, 1, 65535);
}

static void fields(Fields& io, EpochKey& epoch) {
  io.number("epoch", epoch.epoch, 0, LLONG_MAX);
  io.text("host", epoch.host_id);
  io.list("nodes", epoch.nodes, EpochKey::kMostNodes);
}

namespace {

template <typename Key>
Key read_key(const EtcdKey& key) {
  constexpr int kDeepest = 4;
  const ControlJson json = parse_json(key.value, kDeepest);
  Fields reader = Fields::reader(json);
  Key read{.modified = key.modified};
  fields(reader, read);
  return read;
}

template <typename Key>
std::string written(Key key) {
  Fields writer = Fields::writer();
  fields(writer, key);
  return writer.written().dump();
}

void check_place(const HostKey& agent) {
  Fields::require(parse_address(agent.place.address, 0).has_value(), "address");
}

}  // namespace

std::string job_prefix(const std::string& prefix, const std::string& run_id) {
  std::string id;
  for (const char c : run_id) id += c == '/' ? "%2F" : c == '%' ? "%25" : std::string(1, c);
  return prefix + "/" + id + "/";
}

std::string host_text(const HostKey& host) { return written(host); }

std::string epoch_text(const EpochKey& epoch) { return written(epoch); }

std::optional<JobKeys> job_keys(const EtcdRange& range, const std::string& prefix) noexcept {
  try {
    JobKeys keys{.revision = range.revision};
    for (const EtcdKey& key : range.keys) {
      if (key.key == prefix + "host") keys.host = read_key<HostKey>(key);
      if (key.key == prefix + "epoch") keys.epoch = read_key<EpochKey>(key);
    }
    if (keys.host) check_place(*keys.host);
    for (const HostKey& node : keys.epoch.nodes) check_place(node);
    return keys;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

}  // namespace ddp::launch
