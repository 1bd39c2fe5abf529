// An agent's lobby for incoming connections: accepts them at its listening sockets, keeps those not
// yet identified, replies to status queries, and hands over nodes that have sent Hello. Resources
// of unauthenticated peers are bounded: connections (also per address), bytes, time, and work per
// turn. They learn nothing; notes to the user identify them.
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
#include "launcher/base/system/descriptors.h"
#include "launcher/base/system/poll_handler.h"
#include "launcher/rendezvous/wire/control_channel.h"

namespace ddp::launch {

/// A node that has sent Hello.
struct Follower {
  std::unique_ptr<ControlChannel> channel;
  Hello hello;
  Clock::time_point heard{};  // its last sign of life
};

class Lobby : public PollHandler {
 public:
  /// Receives an accepted, non-blocking connection of a client of the workers' store, from which
  /// nothing has been read. Takes ownership if it returns true.
  using StoreClients = std::function<bool(int fd)>;

  /// `place`: its name in messages, such as "the rendezvous". Without `store_clients`, connections
  /// of store clients are closed, and the first one is noted.
  Lobby(std::string place, std::string token, StoreClients store_clients = {});
  ~Lobby() override;

  /// Takes ownership of listening, non-blocking sockets.
  void listen(const std::vector<int>& sockets);
  /// Releases the listening sockets; existing connections stay.
  std::vector<int> take_listeners();
  /// Sets the reply from now on to agents of the same job.
  void answer(const Status& status) { status_ = status; }
  std::vector<Follower> take_arrivals() { return std::exchange(arrivals_, {}); }
  /// Returns the status of each agent of the same job that asked.
  std::vector<Status> take_heard() { return std::exchange(heard_, {}); }
  /// Number of the process's descriptors that connections of nodes may use.
  std::size_t descriptors_left() const;
  /// Sends a last message and keeps the connection for a while until it is read.
  void send_away(std::unique_ptr<ControlChannel> channel, const ControlMessage& last_word);
  /// Makes a line for the user of a node that was refused after its Hello.
  void note_refusal(const std::string& address, const std::string& why);
  /// Returns a line for the user; empty if there is none.
  std::string take_note();

  void add_poll_fds(std::vector<pollfd>& fds) const override;
  void handle(const std::vector<pollfd>& fds) override;
  std::optional<Clock::time_point> deadline() const override;

 private:
  struct Guest {
    std::unique_ptr<ControlChannel> channel{};  // nullptr: its first bytes have not arrived
    Clock::time_point until{};
    std::string address{};
    short watched = 0;
    bool leaves = false;  // has been sent the reason why it may not join
  };
  enum class Concern { kToken, kVersion, kJob, kStore, kCrowd, kRefused };

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
  Descriptor epoll_;
  std::size_t max_guests_;
  std::vector<int> listeners_;
  Status status_;
  std::map<int, Guest> guests_;                   // by descriptor
  std::map<std::string, std::size_t> by_origin_;  // number of guests; see origin_of
  std::vector<Follower> arrivals_;
  std::vector<Status> heard_;
  std::optional<Clock::time_point> next_late_;  // when a guest may next be late
  std::vector<std::string> notes_;
  std::map<Concern, Clock::time_point> noted_;  // when last
};

}  // namespace ddp::launch
