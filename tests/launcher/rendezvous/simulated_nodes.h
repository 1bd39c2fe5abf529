// Nodes of a job without processes: what the agents and the workers of each say through real
// connections. Every wait throws std::runtime_error when it takes two minutes, and every round is
// checked.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "launcher/base/clock.h"
#include "launcher/rendezvous/wire/control_channel.h"
#include "tests/launcher/rendezvous/simulated_host.h"
#include "tests/launcher/store/tcp_store_client.h"

namespace ddp::test {

/// Bytes of all connections since the beginning, in both directions.
struct Traffic {
  std::uint64_t control = 0;
  std::uint64_t store = 0;
};

class SimulatedNodes {
 public:
  SimulatedNodes(int workers, const SimulatedHost& host);
  ~SimulatedNodes();
  SimulatedNodes(const SimulatedNodes&) = delete;
  SimulatedNodes& operator=(const SimulatedNodes&) = delete;

  int count() const { return static_cast<int>(nodes_.size()); }
  /// Each of these returns when all nodes are in the round that follows.
  void start(int more);
  void leave(int fewer);
  void fail_one();
  /// Every rank of every node, with all that a report holds.
  void fail_all();
  void move_to(const SimulatedHost& host);
  /// What the next host knows of the job.
  launch::JobHistory history() const;

  /// All workers connect to the round's store, read what rank 0 has left there, and wait for each
  /// other, as those of torch with NCCL.
  void run_workers();
  void idle(int seconds);
  /// Until the job is over for all nodes.
  void end();
  Traffic traffic() const;

 private:
  struct Worker {
    std::unique_ptr<launch::TcpStoreClient> client;
    int fd = -1;
    int answers = 0;
  };
  struct Node {
    int number = 0;
    int succession_port = 0;
    long long received = 0;  // messages of its session
    std::unique_ptr<launch::ControlChannel> channel;
    short watched = 0;
    std::optional<launch::Round> proposed;
    std::optional<launch::Round> round;  // that it is in
    int rank = -1;                       // in the last round that all had
    bool over = false;
    std::vector<Worker> workers;
  };

  void connect(Node& node);
  void watch(std::size_t key, int fd, short wanted, short& watched);
  void serve(Node& node);
  void receive(Node& node, const launch::ControlMessage& message);
  void stop_workers(Node& node);
  void start_worker(Node& node, Worker& worker, std::size_t key);
  void serve(Node& node, Worker& worker);
  void serve_some(int wait_ms);
  void wait_until(const char* what, const std::function<bool()>& done);
  void wait_for_round();
  void check_round();
  void check_order(const std::vector<const Node*>& by_rank);
  void beat();

  int workers_;
  const SimulatedHost* host_;
  int epoll_;
  std::vector<std::unique_ptr<Node>> nodes_;
  int numbers_ = 0;
  int in_round_ = 0;
  int over_ = 0;
  int ready_workers_ = 0;
  int restarts_ = -1;
  bool failing_ = false;
  bool moving_ = false;  // the next host knows the order of the first nodes only
  Traffic closed_;
  launch::Clock::time_point next_beat_;
};

}  // namespace ddp::test
