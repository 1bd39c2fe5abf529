// Values of single options: text -> lists, rank maps, codes, signals, addresses. Pure; every
// complaint is a LaunchError (2) that names the option, the value and the remedy.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/base/sockets.h"
#include "launcher/logs/stream_plan.h"

namespace ddp::launch {

/// --nproc-per-node; nullopt for gpu, cpu and auto: the machine decides.
std::optional<int> parse_local_world_size(const std::string& value);
/// --nnodes: N or MIN:MAX; says so when it asks for several nodes.
void check_nnodes(const std::string& value);
/// --signals-to-handle: SIGTERM,USR1,15.
std::vector<int> parse_signals(const std::string& list);
/// --rdzv-conf: KEY=VALUE,...
void check_rdzv_conf(const std::string& text);

/// GPUs as in CUDA_VISIBLE_DEVICES: numbers, or UUIDs that begin with GPU- or MIG-.
std::string parse_devices(const std::string& list);
/// --rdzv-endpoint: HOST:PORT or [V6]:PORT; nullopt for a host without a port.
std::optional<Endpoint> parse_endpoint(const std::string& text);

/// --redirects, --tee: 0 to 3, or RANK:VALUE,...
RankStreams parse_streams(const char* name, const std::string& text);
/// --local-ranks-filter: 0,1,12; none for an empty text.
std::set<int> parse_ranks(const std::string& text);
/// --duplicate-*-filters: texts between commas; `,,` stands for a comma.
std::vector<std::string> parse_filters(const std::string& text);
/// Bytes: 4096, 64K, 10M, 2G (of 1024); 0 or from 4096 on.
std::uint64_t parse_size(const char* name, const std::string& text);
/// --final-exit-codes, --retry-exit-codes: 1 to 255.
std::set<int> parse_codes(const char* name, const std::string& text);
/// --health-port: PORT, HOST:PORT or [V6]:PORT; the host is 127.0.0.1 unless given.
Endpoint parse_health(const std::string& text);

}  // namespace ddp::launch
