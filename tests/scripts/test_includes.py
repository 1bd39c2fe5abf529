"""check_includes.py finds each wrong direction, in its file and line, and lets right ones pass."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "checks" / "check_includes.py"

WRONG = [
    ("launcher/agent/agent.cc", '"trainer/runtime/log/log.h"', "launcher never includes trainer"),
    ("launcher/agent/agent.cc", '"launcher/process/worker_processes.h"', "process_runner.h, not worker_processes.h"),
    ("launcher/agent/agent.cc", '"tests/launcher/agent/fake_runner.h"', "launcher never includes tests"),
    ("launcher/base/text.cc", '"launcher/logs/log_file.h"', "arrows point left only"),
    ("launcher/base/text.cc", '"launcher/launch.h"', "arrows point left only"),
    ("launcher/hang/heartbeat.cc", '"launcher/process/spawn.h"', "arrows point left only"),
    ("launcher/cli/launch_config.h", '"launcher/plan/gpus.h"', "arrows point left only"),
    ("launcher/process/spawn.cc", '"launcher/agent/agent.h"', "arrows point left only"),
    ("launcher/plan/job_plan.cc", '"launcher/agent/agent_policy.h"', "arrows point left only"),
    ("launcher/report/http_server.h", '"launcher/logs/line_splitter.h"', "siblings"),
    ("launcher/rendezvous/wire/round_port.cc", '"launcher/process/spawn.h"', "arrows"),
    ("launcher/process/guardian.cc", '"launcher/cli/option_table.h"', "arrows point left only"),
    ("launcher/attic/old.cc", '"launcher/base/clock.h"', "launcher/attic/ is not in the list of rooms"),
    ("launcher/agent/agent.cc", '"launcher/attic/old.h"', "launcher/attic/ is not in the list of rooms"),
    ("launcher/worker_contract.h", '"base/clock.h"', "includes nothing of either"),
    ("launcher/launch.cc", "<torch/torch.h>", "LibTorch is for trainer/"),
    ("launcher/launch.cc", "<yaml-cpp/yaml.h>", "yaml-cpp"),
    ("launcher/launch.cc", "<cxxopts.hpp>", "cxxopts"),
    ("trainer/runtime/log/log.cc", '"trainer/config/config.h"', "arrows point left only"),
    ("trainer/config/config.cc", "<torch/torch.h>", "LibTorch is for trainer/"),
    ("trainer/config/config.cc", '"trainer/model/gpt/gpt.h"', "arrows point left only"),
    ("trainer/model/gpt/gpt.cc", '"trainer/data/dataset.h"', "siblings"),
    ("trainer/data/dataset.cc", '"trainer/parallel/strategy/ddp.h"', "siblings"),
    ("trainer/metrics/metric_log.cc", '"trainer/optim/adamw.h"', "siblings"),
    ("trainer/optim/adamw.cc", '"trainer/run/trainer.h"', "arrows point left only"),
    ("trainer/run/trainer.cc", "<torch/csrc/distributed/c10d/ProcessGroup.hpp>", "c10d"),
    ("trainer/run/trainer.cc", '"launcher/agent/agent.h"', "worker_contract.h"),
    ("trainer/parallel/collectives/process_group.cc", "<torch/csrc/distributed/c10d/reducer.hpp>", "reducer.hpp"),
    ("trainer/parallel/strategy/ddp.cc", "<gloo/context.h>", "gloo_backend.cc"),
    ("trainer/parallel/strategy/ddp.cc", "<torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>", "gloo_backend.cc"),
    ("trainer/hydra/compose/compose.cc", "<yaml-cpp/yaml.h>", "yaml-cpp"),
    ("trainer/hydra/yaml/tree.cc", '"trainer/hydra/compose/compose.h"', "arrows point left only"),
    ("trainer/config/keys/key_table.cc", '"trainer/config/load/read_run.h"', "arrows point left only"),
    ("trainer/hydra/compose/compose.cc", '"trainer/config/keys/key_table.h"', "arrows point left only"),
    ("trainer/config/attic/old.cc", '"trainer/config/keys/key_table.h"', "not in the list"),
    ("trainer/model/gpt/gpt.cc", '"../data/dataset.h"', "from the root"),
    ("trainer/attic/old.cc", '"trainer/config/config.h"', "list of rooms"),
    ("tests/launcher/agent/agent_test.cc", "<torch/torch.h>", "LibTorch is for trainer/"),
]
RIGHT = [
    ("launcher/agent/agent.cc", '"launcher/process/process_runner.h"'),
    ("launcher/agent/agent.cc", '"launcher/base/clock.h"'),
    ("launcher/base/text.cc", '"launcher/worker_contract.h"'),
    ("launcher/hang/heartbeat.cc", '"launcher/logs/line_splitter.h"'),
    ("launcher/process/worker_processes.cc", '"launcher/hang/heartbeat.h"'),
    ("launcher/plan/job_plan.h", '"launcher/cli/launch_config.h"'),
    ("launcher/launch.cc", '"launcher/agent/agent.h"'),
    ("launcher/main.cc", '"launch.h"'),
    ("launcher/main.cc", '"launcher/process/worker_processes.h"'),
    ("launcher/cli/declare_option.h", "<cxxopts.hpp>"),
    ("trainer/hydra/yaml/yaml_reader.cc", "<yaml-cpp/parser.h>"),
    ("trainer/config/show/config_show.cc", '"trainer/config/keys/key_table.h"'),
    ("trainer/config/keys/key_table.h", '"trainer/config/config.h"'),
    ("trainer/config/config.cc", '"trainer/runtime/log/log.h"'),
    ("trainer/model/gpt/gpt.cc", "<torch/torch.h>"),
    ("trainer/parallel/strategy/ddp.cc", "<torch/csrc/distributed/c10d/reducer.hpp>"),
    ("trainer/parallel/collectives/gloo_backend.cc", "<gloo/transport/tcp/device.h>"),
    ("trainer/runtime/files/error_file.cc", '"launcher/worker_contract.h"'),
    ("trainer/run/trainer.cc", '"trainer/data/dataset.h"'),
    ("trainer/main.cc", '"trainer/run/trainer.h"'),
    ("tests/trainer/model/gpt_test.cc", "<torch/torch.h>"),
]


def check(file, include):
    """Runs the script on a tree with one file; the include stands in line 3."""
    with tempfile.TemporaryDirectory() as root:
        path = Path(root) / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"// comment\n#include <vector>\n  #  include {include}  // why\n")
        clock = Path(root) / "launcher" / "base" / "clock.h"
        clock.parent.mkdir(parents=True, exist_ok=True)
        clock.touch()
        return subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True)


class Includes(unittest.TestCase):
    def test_each_wrong_direction_is_reported_with_its_file_and_line(self):
        for file, include, reason in WRONG:
            with self.subTest(file=file, include=include):
                result = check(file, include)
                self.assertEqual(result.returncode, 1, result.stdout)
                self.assertIn(f"{file}:3: ", result.stdout)
                self.assertIn(reason, result.stdout)

    def test_right_directions_pass(self):
        for file, include in RIGHT:
            with self.subTest(file=file, include=include):
                result = check(file, include)
                self.assertEqual(result.returncode, 0, result.stdout)

    def test_a_tree_without_code_is_an_error(self):
        with tempfile.TemporaryDirectory() as root:
            self.assertEqual(subprocess.run([sys.executable, SCRIPT, root], capture_output=True).returncode, 2)
