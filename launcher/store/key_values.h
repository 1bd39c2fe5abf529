// The contents of a TCPStore server: values, queues, and which peer waits for which key. Pure: no
// sockets, no clock. Replies match torch's libuv server, including oddities that clients may rely
// on: COMPARE_SET of an absent key returns the expected value unless that is empty; ADD stores
// decimal text; a BARRIER leaves its count behind, so its key can be used once.
//
// It differs in three cases in which torch's server misleads a waiting client: a COMPARE_SET that
// sets nothing does not wake peers waiting for the absent key; a WAIT does not wait for queues that
// already hold something; and MULTI_SET takes effect only once it has arrived completely.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "launcher/store/tcp_store_protocol.h"

namespace ddp::launch {

class KeyValues {
 public:
  using Peer = std::uint64_t;  // a connection
  struct Answer {
    Peer to = 0;
    std::string bytes;
  };

  explicit KeyValues(const StoreLimits& limits = {}) : limits_(limits) {}

  /// Carries out a request and appends the answers, including those to peers that it wakes. Returns
  /// false if it cannot be carried out (not a number, no room): the protocol has no answer for
  /// that, so the caller should disconnect `from`.
  bool apply(Peer from, Request request, std::vector<Answer>& answers);
  /// Forgets a peer that has disconnected.
  void forget(Peer peer) { stop_waiting(peer); }

  /// Approximate memory in use.
  std::size_t bytes() const { return bytes_; }
  /// Whether something was rejected for lack of memory.
  bool is_full() const { return full_; }
  std::size_t waiting() const { return waits_.size(); }

 private:
  using Text = std::string;
  using Answers = std::vector<Answer>;
  struct Wait {
    std::uint64_t ticket = 0;   // in order of arrival
    std::size_t keys_left = 0;  // 0 ends the wait
    std::vector<Text> keys;
  };

  bool set(Request& request, Answers& answers);
  bool compare_set(Peer from, Request& request, Answers& answers);
  bool get(Peer from, const Request& request, Answers& answers) const;
  bool add(Peer from, const Request& request, Answers& answers);
  bool delete_key(Peer from, const Text& key, Answers& answers);
  bool append(Request& request, Answers& answers);
  bool push(Request& request, Answers& answers);
  bool pop(Peer from, const Text& key, Answers& answers);
  bool list_keys(Peer from, Answers& answers) const;
  bool barrier(Peer from, const Request& request, Answers& answers);

  bool has(const Text& key) const;
  bool has_all(const std::vector<Text>& keys) const;
  bool has_room(std::size_t bytes);
  std::size_t queue_length(const Text& key) const;
  /// Sets `number` to the one that the key's text begins with, 0 if the key is absent.
  bool number_at(const Text& key, std::int64_t& number) const;
  bool put(const Text& key, Text value);
  bool begin_wait(Peer peer, std::vector<Text> keys);
  void stop_waiting(Peer peer);
  void wake_all(const Text& key, Answers& answers);
  void wake_one(const Text& key, Answers& answers);
  bool came(Peer peer, Answers& answers);

  StoreLimits limits_;
  // Ordered maps: no choice of keys can put all of them into one bucket.
  std::map<Text, Text> values_;
  std::map<Text, std::deque<Text>> queues_;
  std::map<Text, std::map<std::uint64_t, Peer>> waiters_;  // by ticket
  std::map<Peer, Wait> waits_;
  std::uint64_t last_ticket_ = 0;
  std::size_t bytes_ = 0;
  bool full_ = false;
};

}  // namespace ddp::launch
