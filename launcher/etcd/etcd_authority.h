// The authority of a job whose host and epochs are in etcd.
//
// The host's key has a lease, which the host renews from the poll loop. An agent takes the host's
// place by a transaction: there is no host (or it is the one whose machine refuses connections),
// and the epoch is the last one that this agent has read. Each round's epoch is written before the
// round is proposed, by a transaction of the same kind, so a host that has lost its place begins
// none.
//
// A running round ends when its host
//   - finds another host in etcd: at once, by a watch;
//   - was suspended beyond its lease: before its agent does anything else;
//   - has not reached etcd for EtcdSettings::outage.
// A new host may begin a round at once if a node of the last round takes part, or one of them is
// known to be dead: no round runs without one of its nodes. Otherwise it waits for `outage`.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/etcd/etcd_client.h"
#include "launcher/etcd/job_keys.h"
#include "launcher/rendezvous/authority.h"
#include "launcher/rendezvous/group_settings.h"
#include "launcher/rendezvous/round/succession.h"

namespace ddp::launch {

class EtcdAuthority : public Authority {
 public:
  /// Throws LaunchError if a certificate cannot be used.
  EtcdAuthority(const EtcdSettings& settings, const GroupSettings& group);
  /// Waits for at most 2 s until etcd knows that this host has left.
  ~EtcdAuthority() override;

  bool finds_first_host() const override { return true; }
  std::string own_address() const override { return client_.own_address(); }
  void seek(std::optional<Loss> loss, const Status& status) override;
  Step next(const View& view) override;
  void avoid(const Place& place) override;
  void settle(bool hosts) override;
  std::string take_note() override { return std::exchange(note_, {}); }
  std::string despair() const override;

  void hand_down(JobHistory& history) const override;
  bool grants_epochs() const override { return true; }
  void request_epoch(const std::vector<Hello>& nodes) override;
  std::optional<long long> take_epoch() override { return std::exchange(granted_, std::nullopt); }
  std::string deposed() const override { return deposed_; }
  void resign() override;
  void end_job() override;

  void add_poll_fds(std::vector<pollfd>& fds) const override;
  void handle(const std::vector<pollfd>& fds) override;
  std::optional<Clock::time_point> deadline() const override;

 private:
  enum class Role { kIdle, kSeeking, kHosting, kLeaving };
  enum class Call { kNone, kRead, kGrant, kClaim, kRenew, kEpoch, kLeave };
  /// Time that passes while the machine sleeps as well.
  using BootTime = std::chrono::nanoseconds;
  static BootTime boot_time();

  void begin_seeking();
  void call(Call kind, const std::string& path, const std::string& body);
  void call_next();
  void call_as_candidate();
  void call_as_host();
  void read();
  void claim();
  void ask_for_epoch();
  void absorb(const EtcdClient::Reply& reply);
  void absorb_read(const std::string& body);
  void absorb_lease(const std::string& body);
  void absorb_transaction(Call kind, const std::string& body);
  void judge_place(std::int64_t epoch_before);
  void grant_epoch();
  bool asked_for_these() const;
  void judge_time();
  void depose(const std::string& why);
  void note_silence();
  void note_outage(Clock::time_point now);
  void fail_first_contact() const;
  bool place_is_free() const;
  bool last_round_is_over();
  void ask_last_nodes();
  EpochKey next_epoch() const;

  EtcdSettings settings_;
  GroupSettings group_;
  std::string prefix_;
  EtcdClient client_;
  Role role_ = Role::kIdle;
  Call call_ = Call::kNone;
  BootTime called_{};  // when the call in progress was sent
  bool contacted_ = false;
  bool stale_ = true;  // keys_ must be read again
  JobKeys keys_{};
  EpochKey asked_{};  // the epoch that the last such transaction was to write

  // While this node has no host.
  Status status_{};
  int expected_ = 0;     // nodes of the last round that may come
  std::string text_;     // why the last host was lost
  std::string gone_id_;  // that host, if it is known to be dead
  Place own_{};
  Clock::time_point turn_{};  // last handle()
  Clock::time_point since_{};
  AvoidedPlaces avoided_;

  // As the host.
  std::int64_t lease_ = 0;
  BootTime lease_until_{};
  BootTime last_turn_{};
  BootTime contact_{};  // of the last renewal
  Clock::time_point next_renewal_{};
  Clock::time_point began_{};  // since when this agent hosts
  std::optional<std::vector<Hello>> wanted_;
  std::optional<long long> granted_;
  std::optional<Inquiry> inquiry_;  // of the last round's nodes
  std::string deposed_;
  bool over_ = false;  // Leaving: the job's keys are erased

  std::string note_;
  bool wait_noted_ = false;
  bool outage_noted_ = false;
};

}  // namespace ddp::launch
