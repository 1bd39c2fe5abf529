// --rdzv-backend=etcd and its part of --rdzv-conf.
#pragma once

#include <map>
#include <string>

#include "launcher/cli/option_values.h"
#include "launcher/etcd/etcd_settings.h"

namespace ddp::launch {

/// Returns the endpoints of --rdzv-endpoint, with port 2379 by default, and the keys of `conf` that
/// concern etcd, which are removed from it: torchrun's for etcd and etcd-v2, and our own. Errors
/// are LaunchErrors (2).
EtcdSettings take_etcd(const OptionValues& values, std::map<std::string, std::string>& conf);

}  // namespace ddp::launch
