#include "launcher/etcd/gateway.h"

#include <nlohmann/json.hpp>

#include "launcher/etcd/job_keys.h"
#include "tests/support/catch.h"

using namespace ddp::launch;
using Json = nlohmann::json;

TEST_CASE("requests to etcd have keys and values in base64 and whole numbers as text") {
  CHECK(Json::parse(range_request("/p/a/")) ==
        Json{{"key", "L3AvYS8="}, {"range_end", "L3AvYTA="}});
  CHECK(Json::parse(watch_request("/p/", 41))["create_request"]["start_revision"] == "42");
  CHECK(Json::parse(grant_request(10)) == Json{{"TTL", "10"}});
  const Json request = Json::parse(
      transaction_request({{"k", 7}, {"none", 0}}, {{"k", "value", 5'000'000'000'000}}, "/p/"));
  CHECK(request["compare"][0] ==
        Json{{"key", "aw=="}, {"target", "MOD"}, {"result", "EQUAL"}, {"mod_revision", "7"}});
  CHECK(request["compare"][1]["mod_revision"] == "0");
  CHECK(request["success"][0]["request_put"] ==
        Json{{"key", "aw=="}, {"value", "dmFsdWU="}, {"lease", "5000000000000"}});
  CHECK(request["success"][1]["request_delete_range"] ==
        Json{{"key", "L3Av"}, {"range_end", "L3Aw"}});
}

TEST_CASE("replies of etcd are read, and malformed ones are none") {
  const auto range = parse_range(
      R"({"header":{"revision":"9"},"kvs":[{"key":"aw==","value":"dmFsdWU=","mod_revision":"8"}]})");
  REQUIRE(range);
  CHECK(range->revision == 9);
  REQUIRE(range->keys.size() == 1);
  CHECK(range->keys[0].key == "k");
  CHECK(range->keys[0].value == "value");
  CHECK(range->keys[0].modified == 8);
  CHECK(parse_range(R"({"header":{"revision":"1"}})")->keys.empty());
  CHECK(parse_transaction(R"({"header":{"revision":"3"},"succeeded":true})")->done);
  CHECK_FALSE(parse_transaction(R"({"header":{"revision":"3"}})")->done);
  CHECK(parse_lease(R"({"ID":"12","TTL":"10"})")->id == 12);
  CHECK(parse_lease(R"({"result":{"ID":"12","TTL":"9"}})")->seconds == 9);
  CHECK(parse_lease(R"({"result":{"ID":"12"}})")->seconds == 0);
  for (const char* text : {"", "null", "[]", "{}", "{\"header\":1}", "<html>",
                           "{\"header\":"
                           "{\"revision\":\"x\"}}",
                           "{\"header\":{\"revision\":{}}}"})
    CHECK_FALSE(parse_range(text));
  for (const char* text : {"[]", "{\"ID\":\"1x\"}", "{\"ID\":[]}"}) CHECK_FALSE(parse_lease(text));
}

TEST_CASE("a watch of etcd ends when it says so, and with anything unknown") {
  CHECK(watch_continues(R"({"result":{"created":true}})"));
  CHECK_FALSE(watch_continues(R"({"result":{"canceled":true,"compact_revision":"5"}})"));
  CHECK_FALSE(watch_continues(R"({"error":{"message":"no leader"}})"));
  CHECK_FALSE(watch_continues("x"));
}

TEST_CASE("the text of etcd's errors and its version are found") {
  CHECK(parse_problem(R"({"error":"etcdserver: no leader","code":14})") == "etcdserver: no leader");
  CHECK(parse_problem(R"({"error":{"message":"grpc: timeout"}})") == "grpc: timeout");
  CHECK(parse_problem("Not Found").empty());
  CHECK(parse_version(R"({"etcdserver":"3.4.23","etcdcluster":"3.4.0"})") == "3.4.23");
  CHECK_FALSE(parse_version("<html>"));
  for (const char* version : {"3.4.23", "3.6.0-rc.1", "4.0.0", "3.10.1"})
    CHECK(has_gateway(version));
  for (const char* version : {"2.3.8", "3.3.27", "3", "x", "", "-3.4"})
    CHECK_FALSE(has_gateway(version));
}

TEST_CASE("a job's keys in etcd are read as they were written, and no other's") {
  const std::string prefix = job_prefix("/torchelastic/p2p", "a/b%");
  CHECK(prefix == "/torchelastic/p2p/a%2Fb%25/");
  EpochKey epoch{.epoch = 4, .host_id = "h"};
  for (int i = 0; i < 300; ++i) epoch.nodes.push_back({std::to_string(i), {"10.0.0.1", 1 + i}});
  EtcdRange range{.revision = 9};
  range.keys = {{prefix + "host", host_text({"h", {"fd00::1", 29400}}), 7},
                {prefix + "epoch", epoch_text(epoch), 8},
                {prefix + "other", "x", 8}};
  const auto keys = job_keys(range, prefix);
  REQUIRE(keys);
  CHECK(keys->host->id == "h");
  CHECK(keys->host->place == Place{"fd00::1", 29400});
  CHECK(keys->host->modified == 7);
  CHECK(keys->epoch.epoch == 4);
  CHECK(keys->epoch.nodes.size() == EpochKey::kMostNodes);
  CHECK(keys->epoch.nodes[255].place.port == 256);
  CHECK(keys->epoch.modified == 8);
  for (const char* text :
       {"", "{}", "[1]", R"({"id":"h","address":"name","port":1})",
        R"({"id":"h","address":"10.0.0.1","port":0})", R"({"id":1,"address":"::1","port":5})"}) {
    range.keys[0].value = text;
    CHECK_FALSE(job_keys(range, prefix));
  }
}
