"""What the documentation tells people to type: options and keys exist, and what a small machine can run in seconds runs."""

import json
import re
import string
import unittest
from functools import cache

from doc_commands import PAGES, all_commands, code_lines, programs_of
from support import BIN, CORPUS, ROOT, RecipeTest


def paths(schema, path=""):
    for name, value in schema["properties"].items():
        if "properties" in value:
            yield from paths(value, f"{path}{name}.")
        elif "description" in value:
            yield path + name


KEYS = list(paths(json.loads((ROOT / "configs/schema.json").read_text())))
# Not hydra's: pages also name those that are refused here.
ROOMS = "|".join(sorted({key.split(".")[0] for key in KEYS if "." in key} - {"hydra"}))
MODES = ["generate", "eval", "predict", "export", "estimate", "plan", "inspect", "report", "doctor", "tokenize", "data"]
# One node of a Slurm, an MPI and a Flux job, and a PBS job, which some commands ask about.
SCHEDULED = {"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "1", "SLURM_NODEID": "0",
             "SLURM_STEP_NODELIST": "gpu1", "SLURM_STEP_NUM_TASKS": "1", "MASTER_ADDR": "gpu1",
             "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_LOCAL_RANK": "0",
             "OMPI_COMM_WORLD_LOCAL_SIZE": "1", "PMIX_NAMESPACE": "job", "FLUX_JOB_NNODES": "2", "FLUX_TASK_RANK": "0",
             "PBS_NODEFILE": "hosts.txt"}


class Parsed(RecipeTest):
    """Each command line of the documentation, parsed by the program it is for without being run."""

    def accepted(self, *command, **environment):
        done = self.run_command(*command, **environment)
        self.assertEqual(done.returncode, 0, " ".join(command) + "\n" + done.stderr)
        return done.stdout

    @cache
    def help_of(self, mode):
        return self.accepted("trainer", mode, "--help")

    def check_mode(self, mode, arguments):
        self.assertIn(mode, MODES)
        for option in arguments:
            if re.match(r"--?[a-z]", option):
                self.assertRegex(self.help_of(mode), rf"(?m)^\s.*{option.split('=')[0]}\b", f"trainer {mode} has no {option}")
        if mode in ("estimate", "plan"):
            self.check_training([argument for argument in arguments if "=" in argument])

    def check_training(self, arguments):
        config = None
        if "--multirun" in arguments:  # of each key's values the first
            arguments = [re.sub(r"=(?:choice\()?([^,()]*).*", r"=\1", argument) for argument in arguments if argument != "--multirun"]
        if arguments and all("=" in argument for argument in arguments):
            config = "configs/quickstart.yaml"
        for option, value in zip(arguments, arguments[1:]):
            if option in ("--config", "-c"):
                config = value
        if not config:
            return self.assertFalse(set(arguments) - {"--help", "--help-config", "--version"}, arguments)
        path = self.folder / re.sub(r"^/(usr|opt/ddp-run)/share/ddp_run/", "", config)
        if path.parent.name != "configs":  # a file of the user's
            path.write_bytes((self.folder / "configs/quickstart.yaml").read_bytes())
        words = [str(path) if argument == config else argument for argument in arguments]
        # trainer's half that reads the command line: LibTorch takes a third of a second to load.
        self.accepted("ddp_config_show", *words, *(["--config", str(path)] if config not in arguments else []), "--cfg", "job")

    def check_trainer(self, arguments):
        if arguments and not arguments[0].startswith("-") and "=" not in arguments[0]:
            self.check_mode(arguments[0], arguments[1:])
        else:
            self.check_training(arguments)

    def check_ddp_run(self, arguments):
        if not arguments or arguments[0] == "--help":
            return
        arguments = [argument.replace("=gpu", "=2").replace("=N", "=0") for argument in arguments]
        program = next((i for i, argument in enumerate(arguments) if not argument.startswith("-")), len(arguments))
        if {"--explain", "--status", "--stacks"} & set(arguments) or "-m" in arguments[:program]:
            return self.assertIn(arguments[0].split("=")[0], self.accepted("ddp-run", "--help"))
        for argument, value in zip(arguments[:program], arguments[1:]):
            if argument == "--hosts":  # its value is a word of its own
                program = arguments.index(value) + 1
        name, *rest = arguments[program:] or ["trainer"]
        if name == "trainer" and rest:
            self.check_trainer(rest)
        elif name.endswith(".py"):
            self.write(name, "")
        options = arguments[:program] + ([] if name.endswith(".py") else ["--no-python"])
        self.accepted("ddp-run", "--dry-run", *options, name if name.endswith(".py") else "true",
                      DDP_SSH="true",  # not every machine has ssh
                      **(SCHEDULED if any("--scheduler" in option for option in options) else {}))

    def test_each_command_is_one_that_its_program_takes(self):
        self.write("hosts.txt", "gpu1:8\ngpu2:8\n")
        checked = {"ddp-run": 0, "trainer": 0}
        for page, line, program, arguments in all_commands():
            with self.subTest(page=page.name, line=line):
                checked[program] += 1
                (self.check_ddp_run if program == "ddp-run" else self.check_trainer)(arguments)
        self.assertGreater(checked["ddp-run"], 20)
        self.assertGreater(checked["trainer"], 60)

    def test_a_wrong_option_or_key_is_found(self):
        for line in ("ddp-run --nproc_per_nod3=2 train.py", "ddp-run --standalone trainer --config configs/quickstart.yaml a.b=1",
                     "trainer --config configs/quickstart.yaml trainer_config.epochs=1", "trainer generate --promt x",
                     "trainer inspekt snapshot.pt", "nice ddp-run --restarts=3 true", "echo x | trainer predict --file -"):
            with self.subTest(line=line), self.assertRaises(AssertionError):
                for program, arguments in programs_of(line):
                    (self.check_ddp_run if program == "ddp-run" else self.check_trainer)(arguments)

    def test_each_key_that_a_page_names_exists(self):
        for page in PAGES:
            for key in re.findall(rf"\b((?:{ROOMS})\.[a-z_0-9.]*[a-z0-9])(?![\w{{*])", page.read_text()):
                if not key.endswith((".yaml", ".h", ".cc", ".md")):
                    with self.subTest(page=page.name):
                        self.assertTrue(any(known == key or known.startswith(key + ".") for known in KEYS), key)


# A training takes four steps of a small model; everything else is as it stands.
SHIM = """#!/bin/bash
case " $* " in
  *" report "* | *" estimate "* | *" plan "* | *" data show "*) exec {trainer} "$@" ;;
  *" configs/qlora.yaml "*) exec {trainer} "$@" trainer_config.max_steps=2 trainer_config.grad_accumulation_steps=2 ;;
  *" --config "*) exec {trainer} "$@" trainer_config.max_steps=4 trainer_config.batch_size=4 \\
      trainer_config.global_batch_size=8 trainer_config.eval_iters=1 optimizer_config.warmup_steps=1 ;;
  *) exec {trainer} "$@" ;;
esac
"""
# Lines with these need a network, a GPU, a terminal or packages, or stand for themselves elsewhere.
NOT_HERE = r"fetch_data|setup\.sh|quickstart\.sh|test\.sh|=gpu|pip |make_digits|tensorboard --|^import |^export |bench|gate|perf "


class Executed(RecipeTest):
    """Pages as they are, from the top to the bottom, in one folder."""

    def setUp(self):
        super().setUp()
        (self.folder / "bin").mkdir()
        shim = self.folder / "bin/trainer"
        shim.write_text(SHIM.format(trainer=BIN / "trainer"))
        shim.chmod(0o755)

    def page(self, name, *made, only=r"ddp-run|trainer"):
        """Runs the page's lines that start one of the programs; what they must have made."""
        lines = [line for line in code_lines(ROOT / name)
                 if list(programs_of(line)) and re.search(only, line) and not re.search(NOT_HERE, line)]
        self.assertTrue(lines, name)
        path = f"{self.folder}/bin:{BIN}"
        for line in lines:
            done = self.run_command("bash", "-euo", "pipefail", "-c", f"PATH={path}:$PATH\n{line}")
            self.assertEqual(done.returncode, 0, f"{name}: {line}\n{done.stdout}{done.stderr}")
        for file in made:
            self.assertTrue((self.folder / file).exists(), f"{name}: {file}")

    def trained(self, snapshot):
        self.write("data/sample_corpus.txt", CORPUS + string.printable)  # prompts may have any character
        line = f"trainer --config configs/quickstart.yaml hydra.run.dir=once && cp once/snapshot.pt {snapshot}"
        done = self.run_command("bash", "-c", f"PATH={self.folder}/bin:$PATH\n{line}")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_readme(self):
        self.write("train.py", "import os; print('rank', os.environ['RANK'])\n")
        self.page("README.md", only=r"train\.py")

    def test_daily_use_of_trainer(self):
        self.write("data/sample_corpus.txt", CORPUS)
        self.write("my.txt", CORPUS[:5_000])
        self.page("trainer/README.md", "outputs/my/snapshot.pt", "outputs/third/snapshot.pt", "report.html",
                  only=r"^(?!.*(doctor|FILE|SNAPSHOT|RUN_DIR|ranks_per_device))")

    def test_the_script_of_the_first_page_is_run_and_explained(self):
        self.write("train.py", "import os, sys; sys.exit(3 if os.environ['RANK'] == '1' else 0)\n")
        lines = [line.replace("=gpu", "=2") for line in code_lines(ROOT / "docs/index.md")]
        self.assertEqual(len(lines), 3)
        codes = [self.run_command("bash", "-c", line).returncode for line in lines]
        self.assertEqual(codes[:2], [3, 3])
        self.assertEqual(self.run_command("bash", "-c", lines[2]).returncode, codes[2])
        self.assertIn("rank 1", self.run_command("bash", "-c", lines[2]).stdout)

    def test_generating_and_exporting(self):
        self.trained("snapshot.pt")
        self.write("prompts.txt", "First\nSecond\n")
        self.page("docs/generate.md", "answers.jsonl")
        self.page("docs/interop.md", "my-gpt2/config.json", "weights/model.pt", "weights/model.safetensors", only="export(?!.*gguf)")

    def test_adapters(self):
        self.write("data/sample_corpus.txt", CORPUS)
        self.write("my.txt", CORPUS[:20_000])
        self.conversations()
        self.page("docs/fine-tune.md", "my-model/config.json", only=r"chat\.yaml$|outputs/chat/")
        self.write("my-chats.jsonl", (self.folder / "data/chat/train.jsonl").read_bytes())
        # A BERT with adapters is trained in tests/e2e/tasks/lora_test.cc.
        self.page("docs/lora.md", "my-adapter/adapter_config.json", "my-merged/model.safetensors", "outputs/qlora/snapshot.pt",
                  only=r"^(?!.*text_classification)trainer")

    def conversations(self):
        done = self.run_command("python3", str(ROOT / "scripts/make_conversations.py"), "data/chat")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_chatting(self):
        self.conversations()
        self.page("docs/chat.md", "my-chat/chat_template.jinja", only=r"^(?!trainer generate --snapshot outputs/chat/snapshot.pt --chat$)")

    def test_fine_tuning(self):
        self.conversations()
        self.write("my-chats.jsonl", (self.folder / "data/chat/eval.jsonl").read_bytes())
        self.page("docs/fine-tune.md", "tuned/chat_template.jinja", "tuned-merged/model.safetensors", "tuned-adapter/chat_template.jinja",
                  "tuned-gguf/model.gguf")

    def test_metrics_and_files_of_tokens(self):
        self.write("data/sample_corpus.txt", CORPUS)
        for name in ("train.txt", "valid.txt"):
            self.write(name, CORPUS[:60_000])
        self.page("docs/metrics.md", "report.html", "outputs/quickstart/metrics.jsonl", "compared.html", only=r"^(?!.*health-port)")
        self.page("docs/data.md", "tokens/tokenizer.json", "tokens_valid")


if __name__ == "__main__":
    unittest.main()
