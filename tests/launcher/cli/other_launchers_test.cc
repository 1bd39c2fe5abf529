// What is pasted from torchrun and other launchers, or at the wrong place.
#include "launcher/cli/launch_config.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "tests/launcher/command_line.h"

namespace ddp::launch {
namespace {

using Words = std::vector<const char*>;

TEST_CASE("every option of torchrun is accepted, in both spellings") {
  const std::vector<std::string> options{"--nnodes=1",
                                         "--nproc-per-node=2",
                                         "--rdzv-backend=static",
                                         "--rdzv-endpoint=localhost:29400",
                                         "--rdzv-id=a",
                                         "--rdzv-conf=timeout=60",
                                         "--standalone",
                                         "--max-restarts=3",
                                         "--monitor-interval=0.5",
                                         "--start-method=fork",
                                         "--event-log-handler=null",
                                         "--role=trainer",
                                         "--module",
                                         "--no-python",
                                         "--run-path",
                                         "--log-dir=logs",
                                         "--redirects=3",
                                         "--tee=3",
                                         "--log-line-prefix-template=${rank}",
                                         "--local-ranks-filter=0",
                                         "--duplicate-stdout-filters=a",
                                         "--duplicate-stderr-filters=a",
                                         "--node-rank=0",
                                         "--master-addr=localhost",
                                         "--master-port=29500",
                                         "--local-addr=localhost",
                                         "--logs-specs=default",
                                         "--numa-binding=node",
                                         "--signals-to-handle=SIGTERM",
                                         "--shutdown-timeout=30",
                                         "--virtual-local-rank",
                                         "--print-completion=bash",
                                         "--help"};
  CHECK(options.size() == 33);
  for (const std::string& option : options) {
    std::string other = option;
    std::replace(other.begin() + 2, other.begin() + std::min(option.size(), option.find('=')), '-',
                 '_');
    CHECK(complaint({option.c_str(), "x"}) == "(accepted)");
    CHECK(complaint({other.c_str(), "x"}) == "(accepted)");
  }
}

TEST_CASE("what torch.distributed.launch took is taken, and changes nothing") {
  const auto config =
      parse({"--nproc_per_node=2", "--nnodes=1", "--node_rank=0", "--master_addr=127.0.0.1",
             "--master_port=29511", "--use_env", "train.py", "--local_rank", "0"});
  CHECK(config.hints.empty());
  CHECK(config.nproc_per_node == "2");
  CHECK(config.program_args == std::vector<std::string>{"--local_rank", "0"});
}

TEST_CASE("an option of another launcher is answered with what to write here") {
  CHECK(complaint({"--num_processes", "2", "x"}) ==
        "unknown option '--num_processes', which is accelerate's; write --nproc-per-node=N, the "
        "processes of one node");
  CHECK(complaint({"--num-machines=2", "x"}) ==
        "unknown option '--num-machines', which is accelerate's; write --nnodes=N");
  CHECK(complaint({"--num_gpus=2", "x"}) ==
        "unknown option '--num_gpus', which is deepspeed's; write --nproc-per-node=N, the "
        "processes of one node");
  for (const char* np : {"-np", "-np=2", "-np2"}) {
    CHECK(complaint({np, "2", "x"}) ==
          "unknown option '-np', which is mpirun's; write --nproc-per-node=N, the processes of one "
          "node");
  }
  CHECK(complaint({"--hostfile=a", "x"}) ==
        "unknown option '--hostfile', which is mpirun's; write --hosts=@FILE");
  CHECK_THAT(complaint({"-H", "a:2,b:2", "x"}), Catch::Contains("write --hosts=HOST:N,..."));
  CHECK_THAT(complaint({"--ntasks-per-node=8", "x"}), Catch::Contains("ddp-run --scheduler=slurm"));
  CHECK_THAT(complaint({"-u", "train.py"}), Catch::Contains("scripts run unbuffered"));
  for (const char* plug_in : {"--dynamo_backend=no", "--zero3_init_flag", "--zero_stage"}) {
    CHECK_THAT(complaint({plug_in, "true", "train.py"}),
               Catch::Contains("which is accelerate's; leave it out: only accelerate launch sets"));
  }
  CHECK(complaint({"--cpu-bind=cores", "x"}) ==
        "unknown option '--cpu-bind', which is srun's; write --numa-binding=node, or give it to "
        "srun");
  for (const char* mca : {"--mca", "-mca"}) {
    CHECK_THAT(complaint({mca, "btl", "tcp", "x"}), Catch::Contains("which is mpirun's; leave it"));
  }
  CHECK(complaint({"-X", "faulthandler", "train.py"}) ==
        "unknown option '-X', which is python's; write ddp-run ... python, this option, then the "
        "script");
  for (const char* gpus : {"--gpus=0,1", "--gpus", "--gpu"}) {
    CHECK_THAT(complaint({gpus, "2", "x"}),
               Catch::Contains("'; write --nproc-per-node=N for N GPUs; CUDA_VISIBLE_DEVICES=0,1"));
  }
}

TEST_CASE("another launcher behind ddp-run is pointed out, its name as an argument is not") {
  const auto hint = [](const std::vector<const char*>& args) {
    const auto hints = parse(args).hints;
    return hints.empty() ? "" : hints.front();
  };
  const std::string rest =
      " is itself a launcher, and each worker will start one: write ddp-run in its place, as in "
      "ddp-run --nproc_per_node=2 train.py";
  CHECK(hint({"torchrun", "--nproc_per_node=2", "train.py"}) == "'torchrun'" + rest);
  CHECK(hint({"/usr/bin/mpirun", "-np", "2", "python", "x.py"}) == "'mpirun'" + rest);
  CHECK(hint({"accelerate", "launch", "train.py"}) == "'accelerate launch'" + rest);
  CHECK(hint({"python", "-m", "torch.distributed.launch", "--use_env", "train.py"}) ==
        "'python -m torch.distributed.launch'" + rest);
  CHECK(hint({"-m", "torch.distributed.run", "train.py"}) == "'torch.distributed.run'" + rest);
  CHECK(hint({"accelerate-launch", "train.py"}) == "'accelerate-launch'" + rest);
  CHECK(hint({"accelerate", "env"}).empty());
  CHECK(hint({"accelerate"}).empty());
  CHECK(hint({"python", "-m"}).empty());
  CHECK(hint({"python", "train.py", "torchrun"}).empty());
  CHECK(hint({"-m", "torchrun"}).empty());
}

TEST_CASE("an option of the script that is written before it belongs behind it") {
  for (const char* name :
       {"--backend", "--dist-backend", "--dist_backend", "--deepspeed", "--lr"}) {
    CHECK(complaint({name, "x", "train.py"}) ==
          "unknown option '" + std::string(name) +
              "', which is your script's; write it behind the script: ddp-run ... train.py " +
              name);
  }
  CHECK_THAT(
      complaint({"--world_size=2", "x"}),
      Catch::Contains("your script's") && Catch::Contains("--nnodes times --nproc-per-node"));
  CHECK_THAT(complaint({"--rank", "0", "x"}), Catch::Contains("this node is --node-rank=N"));
}

TEST_CASE("an option that only torchrun's --rdzv-conf has is shown there") {
  CHECK(complaint({"--rdzv-timeout=5", "x"}) ==
        "unknown option '--rdzv-timeout'; write --rdzv-conf=timeout=SECONDS, or with "
        "--rdzv-backend=c10d --rdzv-conf=join_timeout=SECONDS");
  CHECK_THAT(complaint({"--join_timeout=5", "x"}), Catch::Contains("--rdzv-conf=join_timeout="));
}

TEST_CASE("a long option with one dash is not taken for letters") {
  CHECK(complaint({"-nproc_per_node=2", "x"}) ==
        "unknown option '-nproc_per_node=2'; did you mean --nproc-per-node=2?");
  CHECK(complaint({"-rdzv_backend=c10d", "x"}) ==
        "unknown option '-rdzv_backend=c10d'; did you mean --rdzv-backend=c10d?");
  CHECK(complaint({"-nnodes", "2", "x"}) == "unknown option '-nnodes'; did you mean --nnodes?");
  CHECK(complaint({"-help"}) == "unknown option '-help'; did you mean --help?");
  CHECK(complaint({"-t=3", "x"}) == "(accepted)");
}

TEST_CASE("a flag's supposed value is not run as a program") {
  CHECK(complaint({"--standalone", "true", "train.py"}) ==
        "--standalone takes no value, but 'true' follows; write --standalone train.py");
  CHECK(complaint({"--nnodes=1", "--no_python", "False", "bin/trainer"}) ==
        "--no-python takes no value, but 'False' follows; write --no-python bin/trainer");
  CHECK(complaint({"--standalone", "1", "--nproc_per_node=2", "train.py"}) ==
        "--standalone takes no value, but '1' follows; write --standalone --nproc_per_node=2");
  for (const Words& meant : std::vector<Words>{{"--standalone", "true"},
                                               {"--standalone", "yes", "n"},
                                               {"--standalone", "true", "--version"},
                                               {"--standalone", "true", "--roles", "x.py"},
                                               {"--standalone", "--", "true", "x.py"},
                                               {"--standalone", "--role", "a", "true", "x.py"},
                                               {"true", "x.py"}}) {
    CHECK(complaint(meant) == "(accepted)");
  }
}

TEST_CASE("a script's --local_rank before it is taken as by torchrun, with a line that says so") {
  for (const char* name : {"--local_rank", "--local-rank"}) {
    const auto config = parse({name, "0", "--nproc_per_node=2", "train.py"});
    CHECK(config.logs.console_ranks == std::set<int>{0});
    REQUIRE(config.hints.size() == 1);
    CHECK(
        config.hints[0] ==
        std::string(name) +
            " is short for --local-ranks-filter, as with torchrun: other ranks' output is hidden; "
            "leave it out, as workers find theirs in LOCAL_RANK, or write it behind the script");
  }
  CHECK(parse({"--local-ranks=0", "x"}).hints.empty());
  CHECK(parse({"--local-ranks-filter=0", "x"}).hints.empty());
  CHECK(parse({"x", "--local_rank=0"}).hints.empty());
}

TEST_CASE("a rendezvous that only this machine reaches is known as such") {
  const auto note = [](Words words) {
    words.insert(words.begin(), {"--nnodes=2"});
    words.emplace_back("x");
    return parse(words).group->rules.reach_note;
  };
  CHECK(note({}) ==
        "; the rendezvous is at 127.0.0.1, where other machines cannot reach it: give all nodes "
        "--master-addr=HOST of node 0, and each its --node-rank");
  CHECK(note({"--rdzv-endpoint=localhost:1"}) ==
        "; the rendezvous is at localhost, where other machines cannot reach it: give all nodes "
        "--rdzv-endpoint=HOST:PORT of node 0, and each its --node-rank");
  CHECK(note({"--rdzv-backend=c10d", "--rdzv-endpoint=127.0.1.1"}) ==
        "; the rendezvous is at 127.0.1.1, where other machines cannot reach it: give all nodes "
        "--rdzv-endpoint=HOST:PORT of one of them");
  CHECK_FALSE(note({"--master-addr=::1"}).empty());
  for (const char* host : {"--master-addr=node0", "--master-addr=10.0.0.1", "--master-addr=127.a"})
    CHECK(note({host}).empty());
  CHECK(note({"--rdzv-backend=c10d", "--rdzv-endpoint=node0"}) ==
        "; all nodes need the same endpoint (here node0:29400) and must be able to reach it");
}

}  // namespace
}  // namespace ddp::launch
