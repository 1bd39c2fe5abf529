// A job's keys in etcd, below PREFIX/JOB_ID/: a plain struct for each, and their texts.
// Pure.
//
//   host    the agent that hosts the job, with its lease: {"id", "address", "port"}
//   epoch   the last round's: {"epoch", "host", "nodes": [{"id", "address", "port"}]}
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/etcd/gateway.h"
#include "launcher/rendezvous/wire/inquiry.h"

namespace ddp::launch {

struct HostKey {
  std::string id{};
  Place place{};
  std::int64_t modified = 0;  // revision
};

struct EpochKey {
  using Node = HostKey;  // without a revision
  long long epoch = -1;  // -1: there was no round
  std::string host_id{};
  std::vector<Node> nodes{};  // the first kMostNodes
  std::int64_t modified = 0;  // revision; 0: the key does not exist

  static constexpr std::size_t kMostNodes = 256;
};

struct JobKeys {
  std::optional<HostKey> host{};
  EpochKey epoch{};
  std::int64_t revision = 0;
};

/// "/torchelastic/p2p/JOB_ID/"; a `/` or `%` in the id is escaped, so that no job's keys are part
/// of another's.
std::string job_prefix(const std::string& prefix, const std::string& run_id);

std::string host_text(const HostKey& host);
std::string epoch_text(const EpochKey& epoch);
/// Returns nullopt if the keys do not have values of this form: they are another program's.
std::optional<JobKeys> job_keys(const EtcdRange& range, const std::string& prefix) noexcept;

}  // namespace ddp::launch
