// A node without a host, with an authority that decides as the test wants it to.
#include "launcher/rendezvous/group_rendezvous.h"

#include <poll.h>

#include <memory>
#include <string>
#include <utility>

#include "tests/support/catch.h"

namespace ddp::launch {
namespace {

using std::chrono::seconds;

struct Orders {
  Authority::Step step{};
  std::string despair{};
  Place own{};  // of the node that obeys
};

class Obedient : public Authority {
 public:
  explicit Obedient(Orders& orders) : orders_(orders) {}

  bool finds_first_host() const override { return true; }
  std::string own_address() const override { return "127.0.0.1"; }
  void seek(std::optional<Loss>, const Status&) override {}
  Step next(const View& view) override {
    orders_.own = view.own;
    return orders_.step;
  }
  void avoid(const Place&) override {}
  void settle(bool) override {}
  std::string take_note() override { return ""; }
  std::string despair() const override { return orders_.despair; }
  void hand_down(JobHistory&) const override {}
  bool grants_epochs() const override { return true; }
  void request_epoch(const std::vector<Hello>& nodes) override { wanted_ = !nodes.empty(); }
  std::optional<long long> take_epoch() override {
    return std::exchange(wanted_, false) ? std::optional(epoch_++) : std::nullopt;
  }
  std::string deposed() const override { return ""; }
  void resign() override {}
  void end_job() override {}
  void add_poll_fds(std::vector<pollfd>&) const override {}
  void handle(const std::vector<pollfd>&) override {}
  std::optional<Clock::time_point> deadline() const override { return std::nullopt; }

 private:
  Orders& orders_;
  bool wanted_ = false;
  long long epoch_ = 0;
};

struct Agent {
  Agent() : rendezvous(settings(), std::make_unique<Obedient>(orders)) { rendezvous.join(); }
  static GroupSettings settings() {
    GroupSettings settings;
    settings.rules = {.run_id = "job", .min_nodes = 1, .max_nodes = 2};
    settings.host = "127.0.0.1";
    settings.host_name = "here";
    return settings;
  }
  /// Returns the news of this kind, if it comes within 10 s while both agents run.
  std::optional<JobNews> wait_for(JobNews::Kind kind, Agent& other) {
    std::optional<JobNews> found;
    go_on(other, [&] {
      auto news = rendezvous.take_news();
      if (news && news->kind == kind) found = std::move(news);
      return found.has_value();
    });
    return found;
  }
  template <typename Done>
  void go_on(Agent& other, const Done& done) {
    const auto limit = Clock::now() + seconds(10);
    while (!done() && Clock::now() < limit) {
      std::vector<pollfd> fds;
      for (Agent* agent : {this, &other}) agent->rendezvous.add_poll_fds(fds);
      ::poll(fds.data(), static_cast<nfds_t>(fds.size()), 10);
      for (Agent* agent : {this, &other}) agent->rendezvous.handle(fds);
    }
  }

  Orders orders{};
  GroupRendezvous rendezvous;
};

// Each takes the other for the host to be, and holds it.
struct HeldByEachOther {
  HeldByEachOther() {
    const auto places = [&] { return one.orders.own.port > 0 && other.orders.own.port > 0; };
    one.go_on(other, places);
    REQUIRE(places());
    one.orders.step = {Authority::Step::Kind::kConnect, other.orders.own};
    other.orders.step = {Authority::Step::Kind::kConnect, one.orders.own};
    const auto until = Clock::now() + seconds(1);  // several of the holder's beats
    one.go_on(other, [&] { return Clock::now() >= until; });
    REQUIRE_FALSE(one.rendezvous.has_news());
  }
  Agent one, other;
};

TEST_CASE("a node that another one without a host holds hosts once it is to") {
  HeldByEachOther nodes;
  nodes.one.orders.step = {Authority::Step::Kind::kHost, nodes.one.orders.own};
  const auto start = nodes.one.wait_for(JobNews::Kind::kStart, nodes.other);
  REQUIRE(start);
  CHECK(start->round.group_world_size == 2);
}

TEST_CASE("a node that another one without a host holds goes where else it is to") {
  HeldByEachOther nodes;
  Agent host;
  host.go_on(nodes.one, [&] { return host.orders.own.port > 0; });
  host.orders.step = {Authority::Step::Kind::kHost, host.orders.own};
  REQUIRE(host.wait_for(JobNews::Kind::kStart, nodes.other));
  nodes.one.orders.step = {Authority::Step::Kind::kConnect, host.orders.own};
  const auto stop = host.wait_for(JobNews::Kind::kStop, nodes.one);
  REQUIRE(stop);
  CHECK(stop->text.find("joins; restarting the workers with it") != std::string::npos);
}

TEST_CASE("a node that another one without a host holds gives up in time") {
  HeldByEachOther nodes;
  nodes.one.orders.despair = "no host was found";
  const auto end = nodes.one.wait_for(JobNews::Kind::kEnd, nodes.other);
  REQUIRE(end);
  CHECK(end->failures.front().cause == "no host was found");
}

}  // namespace
}  // namespace ddp::launch
