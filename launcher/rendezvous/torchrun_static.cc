#include "launcher/rendezvous/torchrun_static.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <utility>

namespace ddp::launch {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kLongestTorchrunText = 64 << 10;
constexpr std::int64_t kMostTorchrunRanks = 1 << 24;
constexpr const char* kRoleInfo = "role_info/";
constexpr const char* kAssignedRanks = "assigned_ranks/";
constexpr const char* kMembers = "agent/terminal_state/num_members";
constexpr const char* kLastMember = "agent/terminal_state/last_member";

struct Role {
  std::string name;
  int local_world_size = 0;
};

std::string role_text(const TorchrunNode& node) {
  const Json info = {
      {"role", node.role}, {"rank", node.node_rank}, {"local_world_size", node.local_world_size}};
  return info.dump(-1, ' ', true, Json::error_handler_t::replace);
}

Json parse_text(const std::string& text) {
  return text.size() > kLongestTorchrunText ? Json() : Json::parse(text, nullptr, false);
}

std::optional<int> count_in(const Json& value, std::int64_t least) {
  if (!value.is_number_integer()) return std::nullopt;
  const auto number = value.get<std::int64_t>();
  if (number < least || number > kMostTorchrunRanks) return std::nullopt;
  return static_cast<int>(number);
}

std::optional<Role> parse_role(const std::string& text, int rank) {
  const Json info = parse_text(text);
  if (!info.is_object() || !info.contains("role") || !info["role"].is_string()) return std::nullopt;
  const auto size = count_in(info.value("local_world_size", Json()), 1);
  if (!size || info.value("rank", Json()) != rank) return std::nullopt;
  return Role{info["role"].get<std::string>(), *size};
}

std::optional<TorchrunRanks> parse_ranks(const std::string& text) {
  const Json list = parse_text(text);
  if (!list.is_array() || list.size() != 4) return std::nullopt;
  const auto offset = count_in(list[0], 0), world = count_in(list[1], 1);
  const auto role_offset = count_in(list[2], 0), role_world = count_in(list[3], 1);
  if (!offset || !world || !role_offset || !role_world) return std::nullopt;
  return TorchrunRanks{*offset, *world, *role_offset, *role_world};
}

bool holds(const TorchrunRanks& ranks, int local_world_size) {
  return ranks.rank_offset + local_world_size <= ranks.world_size &&
         ranks.role_rank_offset + local_world_size <= ranks.role_world_size &&
         ranks.role_world_size <= ranks.world_size;
}

std::vector<std::string> assign(const std::vector<Role>& roles) {
  std::int64_t world_size = 0, offset = 0;
  std::map<std::string, std::int64_t> role_sizes, role_offsets;
  for (const Role& role : roles) {
    world_size += role.local_world_size;
    role_sizes[role.name] += role.local_world_size;
  }
  std::vector<std::string> texts;
  for (const Role& role : roles) {
    std::int64_t& role_offset = role_offsets[role.name];
    texts.push_back(
        fmt::format("[{}, {}, {}, {}]", offset, world_size, role_offset, role_sizes[role.name]));
    offset += role.local_world_size;
    role_offset += role.local_world_size;
  }
  return texts;
}

}  // namespace

TorchrunExchange::TorchrunExchange(TorchrunNode node) : node_(std::move(node)) {
  due_.push_back({QueryType::Add, {"init/"}, {}, 1});
  tell_role();
}

std::vector<Request> TorchrunExchange::take_requests() { return std::exchange(due_, {}); }

void TorchrunExchange::ask_again() {
  ranks_.reset();
  tell_role();
}

void TorchrunExchange::tell_role() {
  if (node_.identical) {
    const int world = node_.nnodes * node_.local_world_size;
    const int offset = node_.node_rank * node_.local_world_size;
    ranks_ = {offset, world, offset, world};
    return;
  }
  const auto own = std::to_string(node_.node_rank);
  due_.push_back({QueryType::Set, {key(kRoleInfo + own)}, {role_text(node_)}, 0});
  if (node_.node_rank == 0) {
    std::vector<std::string> keys;
    for (int i = 0; i < node_.nnodes; ++i) keys.push_back(key(kRoleInfo + std::to_string(i)));
    due_.push_back({QueryType::Wait, keys, {}, 0});
    due_.push_back({QueryType::MultiGet, std::move(keys), {}, 0});
  } else {
    due_.push_back({QueryType::Wait, {key(kAssignedRanks + own)}, {}, 0});
    due_.push_back({QueryType::Get, {key(kAssignedRanks + own)}, {}, 0});
  }
}

void TorchrunExchange::enter_exit_barrier() {
  if (std::exchange(in_exit_barrier_, true)) return;
  due_.push_back({QueryType::Add, {key(kMembers)}, {}, 1});
}

// Each request has an answer of its own type, but for ADD and WAIT, which come twice.
void TorchrunExchange::hear(const StoreAnswer& answer) {
  if (!problem_.empty()) return;
  switch (answer.to) {
    case QueryType::MultiGet:
      return hear_roles(answer.values);
    case QueryType::Get:
      return hear_ranks(answer.values.empty() ? "" : answer.values[0]);
    case QueryType::Add:
      return hear_sum(answer.number);
    case QueryType::Wait:
      all_ended_ = awaits_last_member_ && answer.number == kStopWaiting;
      return;
    default:
      return;
  }
}

void TorchrunExchange::hear_roles(const std::vector<std::string>& infos) {
  std::vector<Role> roles;
  std::vector<std::string> keys;
  for (int i = 0; i < static_cast<int>(infos.size()); ++i) {
    const auto role = parse_role(infos[static_cast<std::size_t>(i)], i);
    if (!role) {
      problem_ = fmt::format(
          "what node {} says of its workers (torchelastic/role_info/{}) cannot be read", i, i);
      return;
    }
    roles.push_back(*role);
    keys.push_back(key(kAssignedRanks + std::to_string(i)));
  }
  const auto texts = assign(roles);
  hear_ranks(texts.empty() ? "" : texts[0]);
  due_.push_back({QueryType::MultiSet, std::move(keys), texts, 0});
}

void TorchrunExchange::hear_ranks(const std::string& text) {
  const auto ranks = parse_ranks(text);
  if (ranks && holds(*ranks, node_.local_world_size)) {
    ranks_ = ranks;
  } else {
    problem_ = fmt::format(
        "node 0 assigned ranks (torchelastic/assigned_ranks/{}) that {} workers cannot have",
        node_.node_rank, node_.local_world_size);
  }
}

// The first sum is that of init/, which is for torchrun's node 0 only.
void TorchrunExchange::hear_sum(std::int64_t sum) {
  if (!std::exchange(joined_, true)) return;
  awaits_last_member_ = true;
  if (sum == node_.nnodes)
    due_.push_back({QueryType::Set, {key(kLastMember)}, {"<val_ignored>"}, 0});
  due_.push_back({QueryType::Wait, {key(kLastMember)}, {}, 0});
}

std::string TorchrunExchange::key(const std::string& name) const {
  return "/" + node_.run_id + "/torchelastic/" + name;
}

}  // namespace ddp::launch
