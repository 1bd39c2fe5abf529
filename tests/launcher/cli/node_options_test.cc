// Options of several nodes: how many, where they meet, and by which backend.
#include <chrono>
#include <string>
#include <vector>

#include "tests/launcher/command_line.h"

namespace ddp::launch {
namespace {

TEST_CASE("one node may be written in several ways") {
  CHECK_NOTHROW(parse({"--nnodes=1", "x"}));
  CHECK_NOTHROW(parse({"--nnodes=1:1", "--node-rank=0", "x"}));
}

TEST_CASE("a rendezvous endpoint with a port is the address of rank 0, unless --standalone") {
  CHECK(parse({"--rdzv-endpoint=[::1]:2000", "x"}).master_addr == "::1");
  CHECK(parse({"--rdzv-endpoint=node:2000", "x"}).master_port == 2000);
  CHECK(parse({"--rdzv-endpoint=localhost:0", "x"}).master_port == 0);
  CHECK(parse({"--rdzv-endpoint=node", "x"}).master_port == 0);
  CHECK(parse({"--standalone", "--rdzv-endpoint=node:2000", "x"}).master_port == 0);
  CHECK(parse({"--standalone", "--rdzv-backend=etcd", "x"}).master_port == 0);
  CHECK(parse({"--rdzv-backend=c10d", "--rdzv-endpoint=node:2000", "x"}).master_port == 0);
}

TEST_CASE("c10d takes the address of the master for the endpoint where that is left out") {
  const auto config = parse({"--nnodes=1:2", "--rdzv-backend=c10d", "--master-addr=n1", "x"}, {});
  CHECK(config.group->host == "n1");
  CHECK(config.group->port == 29400);
  const auto port =
      parse({"--nnodes=2", "--rdzv-backend=c10d", "--master-addr=n1", "--master-port=77", "x"}, {});
  CHECK(port.group->port == 77);
  CHECK_THROWS_WITH(
      parse({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=:29500", "x"}, {}),
      Catch::Contains("--rdzv-endpoint=:29500: no host in it; is the shell variable set?"));
  CHECK_THROWS_WITH(parse({"--nnodes=2", "--rdzv-backend=c10d", "x"}, {}),
                    Catch::Contains("--rdzv-endpoint is needed"));
}

TEST_CASE("options of several nodes are reported as without effect on a single one") {
  CHECK(parse({"--rdzv-token-file=/none", "x"}, {}).hints ==
        std::vector<std::string>{"--rdzv-token-file has no effect on a single node"});
  CHECK(parse({"--rank-order=host", "x"}, {}).hints ==
        std::vector<std::string>{"--rank-order has no effect on a single node"});
  CHECK(parse({"--rdzv-conf=typo=1,timeout=900,rank=0", "x"}, {}).hints ==
        std::vector<std::string>{"--rdzv-conf: 'typo=1' has no effect here"});
  CHECK(parse({"--rdzv-backend=etcd", "--rdzv-endpoint=n1", "--rdzv-conf=protocol=http", "x"}, {})
            .hints ==
        std::vector<std::string>{"--rdzv-backend=etcd has no effect on a single node"});
  const auto hints_at = [](const char* endpoint, const char* more) {
    return parse({"--rdzv-backend=c10d", endpoint, more, "x"}, {}).hints;
  };
  for (const char* endpoint : {"--rdzv-endpoint=n1", "--rdzv-endpoint=n1:29400,n2:29400"}) {
    CHECK(hints_at(endpoint, "--max-restarts=0") ==
          std::vector<std::string>{
              "--rdzv-endpoint without --nnodes has no effect on a single node"});
    CHECK(hints_at(endpoint, "--nnodes=1").empty());
    CHECK(hints_at(endpoint, "--standalone").empty());
  }
  CHECK(hints_at("--rdzv-endpoint=localhost:0", "--max-restarts=0").empty());
}

TEST_CASE("etcd takes its endpoints, and torchrun's keys of both of its clients") {
  const auto with = [](const std::string& conf, const char* endpoint = "h1,h2:77,[fd00::1]") {
    const std::string where = std::string("--rdzv-endpoint=") + endpoint,
                      keys = "--rdzv-conf=" + conf;
    return parse({"--nnodes=1:4", "--rdzv-backend=etcd-v2", where.c_str(), keys.c_str(), "x"}, {});
  };
  const auto config = with("protocol=https,ca_cert=ca,ssl_cert=c,ssl_cert_key=k,timeout=5");
  std::string places;
  for (const Endpoint& one : config.etcd->endpoints)
    places += one.host + " " + std::to_string(one.port) + ";";
  CHECK(places == "h1 2379;h2 77;fd00::1 2379;");
  CHECK(config.etcd->tls);
  CHECK(config.etcd->ca_file + config.etcd->cert_file + config.etcd->key_file == "cack");
  CHECK(config.group->rules.join_timeout == std::chrono::seconds(5));
  CHECK_FALSE(config.group->rules.fixed_ranks);
  CHECK(config.hints.empty());
  CHECK(with("etcd_prefix=/mine/", "https://h1:3").etcd->prefix == "/mine");
  CHECK(with("etcd_prefix=/mine/", "https://h1:3").etcd->tls);
  CHECK_THROWS_WITH(with("etcd_prefix=/"), Catch::Contains("must name more than the root"));
  CHECK_THROWS_WITH(with("user=ann"), Catch::Contains("user and password_file need each other"));
  CHECK_THROWS_WITH(with("cert=c"), Catch::Contains("add protocol=https"));
  CHECK_THROWS_WITH(with("protocol=https,key=k"), Catch::Contains("needs cert=FILE"));
  CHECK_THROWS_WITH(parse({"--nnodes=2", "--rdzv-backend=etcd", "x"}, {}),
                    Catch::Contains("--rdzv-backend=etcd: --rdzv-endpoint is needed"));
}

TEST_CASE("c10d takes several endpoints, of which the first is asked first") {
  const auto with = [](const std::string& endpoint, const char* backend) {
    const std::string option = "--rdzv-endpoint=" + endpoint;
    return parse({"--nnodes=2", backend, option.c_str(), "x"}, {});
  };
  const char* options = "--rdzv-backend=c10d";
  std::vector<std::string> places;
  for (const Endpoint& one : with("n1,[fd00::2]:77, n3:78", options).group->endpoints())
    places.push_back(one.host + " " + std::to_string(one.port));
  CHECK(places == std::vector<std::string>{"n1 29400", "fd00::2 77", "n3 78"});
  CHECK_THROWS_WITH(with("n1,,n3", options),
                    Catch::Contains("--rdzv-endpoint=n1,,n3: no host in it"));
  CHECK_THROWS_WITH(with("n1,n2:x", options),
                    Catch::Contains("--rdzv-endpoint=n2:x: must be HOST or HOST:PORT"));
  CHECK_THROWS_WITH(with("n1,n2", "--rdzv-backend=static"),
                    Catch::Contains("--rdzv-endpoint=n1,n2: several endpoints are for "
                                    "--rdzv-backend=c10d; give the one of node 0"));
  CHECK_THROWS_WITH(with("a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a", options),
                    Catch::Contains("at most 16 endpoints"));
}

TEST_CASE("a range of nodes without c10d is pointed out") {
  CHECK(parse({"--nnodes=1:2", "--master-addr=n1", "x"}, {}).hints ==
        std::vector<std::string>{
            "--nnodes=1:2: without --rdzv-backend=c10d the job waits for all 2 nodes"});
  CHECK(parse({"--nnodes=2", "--master-addr=n1", "x"}, {}).hints.empty());
}

}  // namespace
}  // namespace ddp::launch
