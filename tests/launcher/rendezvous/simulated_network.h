// A network within this process: real TCP over the loopback, with faults, and a clock that only
// moves on request. Node n has the address 127.0.0.<n + 1>. The program must be linked with the
// options that CMakeLists.txt gives to simulate_faults: calls into the system come here first.
#pragma once

#include <chrono>
#include <string>

namespace ddp::test {

class SimulatedNetwork {
 public:
  using Time = std::chrono::steady_clock::time_point;

  static Time now();
  static void advance_to(Time time);
  /// After a node has waited alone, for which the clock was moved.
  static void turn_back_to(Time time);

  /// The node whose code runs from now on.
  static void act_as(int node);
  /// Random names are the same from now on for the same seed.
  static void seed(unsigned long seed);
  static std::string address_of(int node);

  /// Nothing passes between two nodes any more, neither bytes nor the end of a connection.
  static void cut(int a, int b);
  static void heal(int a, int b);
  static void heal_all();
  /// All their connections are reset, at both ends.
  static void reset(int a, int b);
  /// From now on its connections and listening sockets end as if its process had been killed.
  static void kill(int node);
  static void revive(int node);

  /// Since the last call: whether anything was sent, read, accepted or closed.
  static bool take_progress();
};

}  // namespace ddp::test
