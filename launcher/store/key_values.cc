#include "launcher/store/key_values.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

namespace ddp::launch {
namespace {

constexpr std::size_t kPerEntry = 128;  // nodes of the maps and the strings themselves

std::size_t cost(const std::string& key, const std::string& value) {
  return key.size() + value.size() + kPerEntry;
}

std::size_t cost(const std::vector<std::string>& keys) {
  std::size_t sum = 0;
  for (const auto& key : keys) sum += 2 * (key.size() + kPerEntry);
  return sum;
}

std::string byte(char value) { return std::string(1, value); }

std::string number(std::int64_t value) {
  std::string out;
  put_number(out, value);
  return out;
}

std::string text(std::string_view value) {
  std::string out;
  put_text(out, value);
  return out;
}

bool answer(std::vector<KeyValues::Answer>& answers, KeyValues::Peer to, std::string bytes) {
  answers.push_back({to, std::move(bytes)});
  return true;
}

}  // namespace

bool KeyValues::apply(Peer from, Request request, Answers& answers) {
  switch (request.type) {
    case QueryType::kValidate:
      return true;
    case QueryType::kPing: {
      std::string nonce;
      put_number(nonce, static_cast<std::uint32_t>(request.number));
      return answer(answers, from, nonce);
    }
    case QueryType::kSet:
    case QueryType::kMultiSet:
      return set(request, answers);
    case QueryType::kCompareSet:
      return compare_set(from, request, answers);
    case QueryType::kGet:
    case QueryType::kMultiGet:
      return get(from, request, answers);
    case QueryType::kAdd:
      return add(from, request, answers);
    case QueryType::kCheck:
      return answer(answers, from, byte(has_all(request.keys) ? kReady : kNotReady));
    case QueryType::kWait:
      return has_all(request.keys) ? answer(answers, from, byte(kStopWaiting))
                                   : begin_wait(from, std::move(request.keys));
    case QueryType::kCancelWait:
      stop_waiting(from);
      return answer(answers, from, byte(kWaitCanceled));
    case QueryType::kGetNumKeys:
      return answer(answers, from, number(static_cast<std::int64_t>(values_.size())));
    case QueryType::kDeleteKey:
      return delete_key(from, request.keys[0], answers);
    case QueryType::kAppend:
      return append(request, answers);
    case QueryType::kQueuePush:
      return push(request, answers);
    case QueryType::kQueuePop:
      return pop(from, request.keys[0], answers);
    case QueryType::kQueueLen:
      return answer(answers, from,
                    number(static_cast<std::int64_t>(queue_length(request.keys[0]))));
    case QueryType::kListKeys:
      return list_keys(from, answers);
    case QueryType::kBarrier:
      return barrier(from, request, answers);
  }
  return false;
}

bool KeyValues::set(Request& request, Answers& answers) {
  for (std::size_t i = 0; i < request.keys.size(); ++i) {
    if (!put(request.keys[i], std::move(request.values[i]))) return false;
    wake_all(request.keys[i], answers);
  }
  return true;
}

bool KeyValues::compare_set(Peer from, Request& request, Answers& answers) {
  const Text& key = request.keys[0];
  Text &expected = request.values[0], &desired = request.values[1];
  const auto found = values_.find(key);
  if (found == values_.end() && !expected.empty()) return answer(answers, from, text(expected));
  const bool is_expected = found == values_.end() || found->second == expected;
  if (is_expected && !put(key, std::move(desired))) return false;
  answers.push_back({from, text(values_.at(key))});
  wake_all(key, answers);
  return true;
}

// Absent keys have an empty value.
bool KeyValues::get(Peer from, const Request& request, Answers& answers) const {
  std::size_t size = 0;
  for (const Text& key : request.keys) {
    const auto found = values_.find(key);
    size += sizeof(std::uint64_t) + (found == values_.end() ? 0 : found->second.size());
  }
  if (size > limits_.message + sizeof(std::uint64_t)) return false;
  Answer answer{from, ""};
  answer.bytes.reserve(size);
  for (const Text& key : request.keys) {
    const auto found = values_.find(key);
    put_text(answer.bytes, found == values_.end() ? std::string_view() : found->second);
  }
  answers.push_back(std::move(answer));
  return true;
}

bool KeyValues::add(Peer from, const Request& request, Answers& answers) {
  std::int64_t old = 0;
  const Text& key = request.keys[0];
  if (!number_at(key, old)) return false;
  const auto sum = static_cast<std::int64_t>(static_cast<std::uint64_t>(old) +
                                             static_cast<std::uint64_t>(request.number));
  if (!put(key, std::to_string(sum))) return false;
  answers.push_back({from, number(sum)});
  wake_all(key, answers);
  return true;
}

bool KeyValues::delete_key(Peer from, const Text& key, Answers& answers) {
  const auto found = values_.find(key);
  const bool there = found != values_.end();
  if (there) {
    bytes_ -= cost(key, found->second);
    values_.erase(found);
  }
  return answer(answers, from, number(there ? 1 : 0));
}

bool KeyValues::append(Request& request, Answers& answers) {
  const Text& key = request.keys[0];
  Text& more = request.values[0];
  const auto found = values_.find(key);
  if (found == values_.end()) {
    if (!put(key, std::move(more))) return false;
  } else {
    // A growing string may take twice what it holds.
    if (found->second.size() + more.size() > limits_.message || !has_room(more.size()))
      return false;
    found->second.append(more);
    bytes_ += more.size();
  }
  wake_all(key, answers);
  return true;
}

bool KeyValues::push(Request& request, Answers& answers) {
  const Text& key = request.keys[0];
  Text& value = request.values[0];
  if (!has_room(cost(key, value))) return false;
  bytes_ += cost(key, value);
  queues_[key].push_back(std::move(value));
  wake_one(key, answers);
  return true;
}

// How many there were; if any, the first of them.
bool KeyValues::pop(Peer from, const Text& key, Answers& answers) {
  Answer answer{from, number(static_cast<std::int64_t>(queue_length(key)))};
  const auto found = queues_.find(key);
  if (found != queues_.end()) {
    const Text& first = found->second.front();
    put_text(answer.bytes, first);
    bytes_ -= cost(key, first);
    found->second.pop_front();
    if (found->second.empty()) queues_.erase(found);
  }
  answers.push_back(std::move(answer));
  return true;
}

bool KeyValues::list_keys(Peer from, Answers& answers) const {
  std::size_t size = sizeof(std::uint64_t);
  for (const auto& [key, value] : values_) size += sizeof(std::uint64_t) + key.size();
  if (size > limits_.message) return false;
  Answer answer{from, number(static_cast<std::int64_t>(values_.size()))};
  answer.bytes.reserve(size);
  for (const auto& [key, value] : values_) put_text(answer.bytes, key);
  answers.push_back(std::move(answer));
  return true;
}

bool KeyValues::barrier(Peer from, const Request& request, Answers& answers) {
  std::int64_t count = 0;
  const Text& key = request.keys[0];
  if (!number_at(key, count) || count == INT64_MAX) return false;
  if (!put(key, std::to_string(++count))) return false;
  if (count < request.number) return begin_wait(from, {key});
  wake_all(key, answers);
  return answer(answers, from, byte(kStopWaiting));
}

bool KeyValues::has_room(std::size_t bytes) {
  full_ = bytes_ + bytes > limits_.contents;
  return !full_;
}

bool KeyValues::has(const Text& key) const {
  return values_.count(key) > 0 || queue_length(key) > 0;
}

bool KeyValues::has_all(const std::vector<Text>& keys) const {
  return std::all_of(keys.begin(), keys.end(), [this](const Text& key) { return has(key); });
}

std::size_t KeyValues::queue_length(const Text& key) const {
  const auto found = queues_.find(key);
  return found == queues_.end() ? 0 : found->second.size();
}

bool KeyValues::number_at(const Text& key, std::int64_t& number) const {
  number = 0;
  const auto found = values_.find(key);
  if (found == values_.end()) return true;
  char* end = nullptr;
  errno = 0;
  number = std::strtoll(found->second.c_str(), &end, 10);
  return end != found->second.c_str() && errno == 0;
}

bool KeyValues::put(const Text& key, Text value) {
  const auto found = values_.find(key);
  const std::size_t before = found == values_.end() ? 0 : cost(key, found->second);
  const std::size_t now = cost(key, value);
  if (now > before && !has_room(now - before)) return false;
  bytes_ += now;
  bytes_ -= before;
  values_[key] = std::move(value);
  return true;
}

// A peer waits for one thing at a time.
bool KeyValues::begin_wait(Peer peer, std::vector<Text> keys) {
  stop_waiting(peer);
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  // A barrier's own key is there already.
  const bool one = keys.size() == 1;
  if (!one) std::erase_if(keys, [this](const Text& key) { return has(key); });
  if (!has_room(cost(keys))) return false;
  bytes_ += cost(keys);
  Wait& wait = waits_[peer];
  wait = {++last_ticket_, keys.size(), std::move(keys)};
  for (const Text& key : wait.keys) waiters_[key].emplace(wait.ticket, peer);
  return true;
}

void KeyValues::stop_waiting(Peer peer) {
  const auto wait = waits_.find(peer);
  if (wait == waits_.end()) return;
  for (const Text& key : wait->second.keys) {
    const auto waiters = waiters_.find(key);
    if (waiters == waiters_.end()) continue;
    waiters->second.erase(wait->second.ticket);
    if (waiters->second.empty()) waiters_.erase(waiters);
  }
  bytes_ -= cost(wait->second.keys);
  waits_.erase(wait);
}

void KeyValues::wake_all(const Text& key, Answers& answers) {
  const auto found = waiters_.find(key);
  if (found == waiters_.end()) return;
  const auto waiters = std::move(found->second);
  waiters_.erase(found);
  for (const auto& [ticket, peer] : waiters) came(peer, answers);
}

// An item pushed to a queue wakes only one of the peers that wait for it.
void KeyValues::wake_one(const Text& key, Answers& answers) {
  const auto found = waiters_.find(key);
  bool done = found == waiters_.end();
  while (!done) {
    const Peer first = found->second.begin()->second;
    found->second.erase(found->second.begin());
    done = found->second.empty();
    if (done) waiters_.erase(found);
    done = came(first, answers) || done;
  }
}

// One of the keys that `peer` waits for. True: it was the last.
bool KeyValues::came(Peer peer, Answers& answers) {
  const auto wait = waits_.find(peer);
  if (--wait->second.keys_left > 0) return false;
  bytes_ -= cost(wait->second.keys);
  waits_.erase(wait);
  answers.push_back({peer, byte(kStopWaiting)});
  return true;
}

}  // namespace ddp::launch
