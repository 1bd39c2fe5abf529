// The door of an agent: accepts connections at its listening sockets, keeps those of which nobody
// knows whose they are, answers questions about the job, and hands on nodes that said Hello. What
// strangers can take is bounded: connections, also by address, bytes, time, and work per turn. They
// learn nothing; the notes name them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/base/clock.h"
#include "launcher/base/system/acceptor.h"
#include "launcher/base/system/poll_handler.h"
#include "launcher/rendezvous/wire/control_channel.h"

namespace ddp::launch {

/// A node that has said Hello.
struct Follower {
  std::unique_ptr<ControlChannel> channel;
  Hello hello;
  Clock::time_point heard{};  // its last sign of life
};

class Lobby : public PollHandler {
 public:
  /// Is given an accepted, non-blocking connection of a client of the workers' store, of which
  /// nothing was read. Takes ownership if it returns true.
  using StoreClients = std::function<bool(int fd)>;

  /// `place` names it in messages: "the rendezvous". Without `store_clients` clients of the store
  /// are closed, and the first one is noted.
  Lobby(std::string place, std::string token, StoreClients store_clients = {});
  ~Lobby() override;
  Lobby(const Lobby&) = delete;
  Lobby& operator=(const Lobby&) = delete;

  /// Takes ownership of listening, non-blocking sockets.
  void listen(const std::vector<int>& sockets);
  /// Gives them up; those who have connected stay.
  std::vector<int> take_listeners();
  /// Sets the answer from now on, for agents of the same job.
  void answer(const Status& status) { status_ = status; }
  std::vector<Follower> take_arrivals() { return std::exchange(arrivals_, {}); }
  /// Returns the status of each agent of the same job that asked.
  std::vector<Status> take_heard() { return std::exchange(heard_, {}); }
  /// How many of the process's descriptors may be connections of nodes.
  std::size_t descriptors_left() const;
  /// Sends a last message, and waits for a while until it is read.
  void send_away(std::unique_ptr<ControlChannel> channel, const ControlMessage& last_word);
  /// Returns a line for the user; empty: none.
  std::string take_note();

  void add_poll_fds(std::vector<pollfd>& fds) const override;
  void handle(const std::vector<pollfd>& fds) override;
  std::optional<Clock::time_point> deadline() const override;

 private:
  struct Guest {
    std::unique_ptr<ControlChannel> channel{};  // nullptr: its first bytes have not come
    Clock::time_point until{};
    std::string address{};
    short watched = 0;
    bool leaves = false;  // has been sent the reason why it may not join
  };
  enum class Concern { kToken, kVersion, kJob, kStore, kCrowd };

  void watch_listeners();
  void accept_some(int listener);
  void enter(int fd, Guest guest);
  void make_room();
  void judge(int fd, Guest& guest);
  void pass_to_store(int fd);
  void serve(int fd, Guest& guest);
  void greet(int fd, const Hello& hello);
  void watch(int fd, Guest& guest);
  Guest let_go(int fd);
  void drop(int fd);
  void drop_late(Clock::time_point now);
  void note_objection(const Guest& guest);
  void note(Concern concern, std::string text);

  std::string place_;
  std::string token_;
  StoreClients store_clients_;
  Acceptor acceptor_;
  int epoll_ = -1;
  std::size_t max_guests_;
  std::vector<int> listeners_;
  Status status_;
  std::map<int, Guest> guests_;                   // by descriptor
  std::map<std::string, std::size_t> by_origin_;  // how many of them; see origin_of
  std::vector<Follower> arrivals_;
  std::vector<Status> heard_;
  std::optional<Clock::time_point> next_late_;  // when a guest may next be late
  std::vector<std::string> notes_;
  std::map<Concern, Clock::time_point> noted_;  // when last
};

}  // namespace ddp::launch
