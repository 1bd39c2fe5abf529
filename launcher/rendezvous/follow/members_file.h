// The nodes of the last round that this node accepted, in a file that outlives its agent: a node
// that returns asks them before it hosts a job of its own, and its epoch is its vote for the next
// host. Written before the node accepts the round. One agent at a time uses a file.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/base/system/descriptors.h"
#include "launcher/base/system/sockets.h"
#include "launcher/rendezvous/wire/inquiry.h"

namespace ddp::launch {

struct LastMembers {
  std::string member{};         // this node's Hello::member
  long long epoch = -1;         // of the last round that this node accepted; -1: none
  std::vector<Place> places{};  // of the other nodes, the host first
  bool alone = false;           // there was no other node
};

class MembersFile {
 public:
  /// `path`: empty: no file. A file of another job or of other endpoints is ignored.
  MembersFile(std::string path, std::string run_id, const std::vector<Endpoint>& endpoints);

  /// Returns the file's content; empty if it is absent, damaged or in use by another agent, which
  /// then keeps it. Waits up to a second for such an agent, which may be about to end.
  LastMembers read();
  /// Replaces the file atomically and durably. Does nothing if it is unchanged.
  void write(const LastMembers& members);
  /// Removes the file. Call when the job is over.
  void remove();
  /// Returns, once, a line for the user about a file that cannot be read or written.
  std::string take_note() { return std::exchange(note_, {}); }

 private:
  bool is_ours();
  bool lock(Descriptor file);
  bool becomes_ours();
  bool replace(const std::string& text);

  std::string path_;
  std::string run_id_;
  std::string endpoints_;
  std::string written_;
  std::string note_;
  Descriptor lock_;  // the file, locked while this agent runs
};

/// Pure. Throws std::exception if the text is malformed or has values out of range.
LastMembers parse_members(std::string_view text, const std::string& run_id,
                          const std::string& endpoints);

}  // namespace ddp::launch
