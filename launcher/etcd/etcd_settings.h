// How to reach an etcd cluster: a plain struct.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "launcher/base/system/sockets.h"

namespace ddp::launch {

struct EtcdSettings {
  std::vector<Endpoint> endpoints{};  // names or numeric addresses; the first that answers serves
  bool tls = false;
  std::string ca_file{};    // certificates to trust; empty: the system's
  std::string cert_file{};  // client certificate and its key; empty: none
  std::string key_file{};
  std::string user{};  // empty: no authentication
  std::string password{};
  std::string password_file{};              // where it is read from before the job starts
  std::string prefix{"/torchelastic/p2p"};  // of all keys; the job's id follows
  std::chrono::milliseconds lease{10'000};  // a host that is silent for longer loses its place
  /// How long a running round continues without etcd. Nodes that know none of a round's nodes wait
  /// as long before they begin one of their own.
  std::chrono::milliseconds outage{120'000};
  std::chrono::milliseconds first_contact{60'000};  // then the job fails
};

}  // namespace ddp::launch
