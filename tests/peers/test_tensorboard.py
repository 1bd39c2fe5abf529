"""Event files as the real TensorBoard reads them."""

import json
import math
import os
import struct
import subprocess
import sys
import unittest
from pathlib import Path

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator as PluginEventAccumulator
except ImportError:
    print(f"[skipped] all of it: no tensorboard for {sys.executable}")
    sys.exit(0)

from metrics_probe import ROOT, ProbeTest

TRAINER = Path(os.environ.get("DDP_TRAINER", ROOT / "build/release/bin/trainer"))


def single(value):
    return struct.unpack("f", struct.pack("f", value))[0]


class EventFiles(ProbeTest):
    def read(self):
        accumulator = EventAccumulator(str(self.run_folder / "tensorboard"), size_guidance={
            "scalars": 0, "tensors": 0, "histograms": 0})
        accumulator.Reload()
        return accumulator

    def scalars(self, accumulator, tag):
        return [(event.step, event.value) for event in accumulator.Scalars(tag)]

    def test_scalars_have_their_steps_values_and_times(self):
        losses = {step: 5.0 / step + 1e-3 for step in (1, 2, 127, 128, 300, 70_000, 2**40)}
        self.attempt("begin 0\n" + "".join(f"train {step} {loss} lr 0.0003\n" for step, loss in losses.items())
                     + "eval 300 nan\n")
        read = self.read()
        self.assertEqual(read.Tags()["scalars"], ["train/loss", "train/lr", "eval/loss"])
        self.assertEqual(self.scalars(read, "train/loss"), [(step, single(loss)) for step, loss in losses.items()])
        self.assertEqual({event.value for event in read.Scalars("train/lr")}, {single(3e-4)})
        self.assertTrue(math.isnan(read.Scalars("eval/loss")[0].value))
        self.assertEqual([event.wall_time for event in read.Scalars("train/loss")], [1.7e9 + step for step in losses])

    def test_after_a_resume_and_a_rollback_no_step_is_there_twice(self):
        self.attempt("begin 0\n" + "".join(f"train {step} {step}\n" for step in range(1, 11)) + "eval 8 1\ntext 9 sample a\n")
        self.attempt("begin 6\n" + "".join(f"train {step} {100 + step}\n" for step in range(7, 10)) + "text 9 sample b\n"
                     "begin 8\ntrain 9 209\ntrain 10 210\n")
        read = self.read()
        self.assertEqual(self.scalars(read, "train/loss"),
                         [(step, float(step)) for step in range(1, 7)] + [(7, 107.0), (8, 108.0), (9, 209.0), (10, 210.0)])
        self.assertEqual(read.Scalars("eval/loss"), [])
        # The reader of text and of the web page; the older one above never forgets a tensor.
        plugins = PluginEventAccumulator(str(self.run_folder / "tensorboard"))
        plugins.Reload()
        self.assertEqual(plugins.Tensors("sample"), [])
        self.assertEqual([event.step for event in plugins.Tensors("train/loss")], list(range(1, 11)))
        self.assertEqual(len(list((self.run_folder / "tensorboard").iterdir())), 2)

    def test_a_run_that_begins_anew_replaces_the_one_before(self):
        self.attempt("begin 0\neval 0 9\ntrain 1 1\ntrain 2 2\n")
        self.attempt("begin 0\neval 0 8\ntrain 1 3\n")
        read = self.read()
        self.assertEqual(self.scalars(read, "train/loss"), [(1, 3.0)])
        self.assertEqual(self.scalars(read, "eval/loss"), [(0, 8.0)])

    def test_text_comes_back_as_it_was(self):
        self.attempt("begin 0\ntext 5 sample To be, \u00fc\u4e2d\U0001f600 <b>not</b>\n")
        read = self.read()
        self.assertEqual(read.Tags()["tensors"], ["sample"])
        self.assertEqual(read.SummaryMetadata("sample").plugin_data.plugin_name, "text")
        event = read.Tensors("sample")[0]
        self.assertEqual(event.step, 5)
        self.assertEqual([text.decode() for text in event.tensor_proto.string_val],
                         ["    To be, \u00fc\u4e2d\U0001f600 <b>not</b>"])

    def test_histograms_have_their_sums_and_buckets(self):
        values = [0.5, -2.0, 0.0, 0.5, 3.25]
        self.attempt("begin 0\nhistogram 7 weights " + " ".join(map(str, values)) + "\n")
        event = self.read().Histograms("weights")[0]
        histogram = event.histogram_value
        self.assertEqual((event.step, histogram.min, histogram.max, histogram.num), (7, -2.0, 3.25, 5.0))
        self.assertEqual((histogram.sum, histogram.sum_squares), (sum(values), sum(value**2 for value in values)))
        self.assertEqual(sum(histogram.bucket), 5.0)
        self.assertEqual(list(histogram.bucket_limit), sorted(histogram.bucket_limit))

    def test_every_record_passes_the_checks_of_the_reader(self):
        self.attempt("begin 3\n" + "".join(f"train {step} {step}\n" for step in range(4, 200)))
        file = next((self.run_folder / "tensorboard").iterdir())
        self.assertEqual(len(list(RawEventFileLoader(str(file)).Load())), 2 + 196)

    def test_tensorboard_inspect_names_what_is_there(self):
        self.attempt("begin 0\ntrain 1 1\ntrain 2 2\n")
        done = subprocess.run([sys.executable, "-m", "tensorboard.main", "--inspect", "--logdir", self.run_folder],
                              capture_output=True, text=True, timeout=240)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("train/loss", done.stdout)

    def train(self, max_steps):
        overrides = ["trainer_config.batch_size=2", "trainer_config.log_every_steps=5", "trainer_config.eval_every_steps=10",
                     "trainer_config.device=cpu", "logging_config.tensorboard=true", "logging_config.histogram_every_steps=10",
                     "trainer_config.sample_every_steps=10", "trainer_config.sample_tokens=12",
                     f"trainer_config.max_steps={max_steps}", f"data_config.path={ROOT}/data/sample_corpus.txt",
                     "data_config.truncate=0.05", "data_config.block_size=16", "gpt_config.model_type=gpt-nano",
                     f"trainer_config.snapshot_path={self.folder}/snapshot.pt", f"hydra.run.dir={self.run_folder}"]
        config = self.folder / "config.yaml"
        config.write_text("data_config: {}\n")
        subprocess.run([TRAINER, "--config", config, *overrides], check=True, timeout=240, stdout=subprocess.DEVNULL)

    def test_a_training_and_its_resume_look_like_one(self):
        self.train(20)
        self.train(30)
        read = self.read()
        with open(self.run_folder / "metrics.jsonl", encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        for split in ("train", "eval"):
            for name in ("loss", "grad_norm", "perplexity"):
                expected = [(line["step"], single(line[name])) for line in lines if line["split"] == split and name in line]
                if expected:
                    self.assertEqual(self.scalars(read, f"{split}/{name}"), expected)
        self.assertEqual([step for step, _ in self.scalars(read, "train/loss")], [1, 5, 10, 15, 20, 21, 25, 30])
        self.assertIn("max_steps", read.Tensors("config")[0].tensor_proto.string_val[0].decode())
        histograms = read.Histograms("parameters/transformer.wte.weight")
        self.assertEqual([event.step for event in histograms], [10, 20, 30])
        self.assertEqual(histograms[0].histogram_value.num % 48, 0)  # gpt-nano's channels
        gradients = read.Histograms("gradients/transformer.wte.weight")
        self.assertEqual([event.step for event in gradients], [10, 20, 30])
        for weights, gradient in zip(histograms, gradients):
            self.assertEqual(gradient.histogram_value.num, weights.histogram_value.num)
            # Clipped to a norm of 1 with all the others.
            self.assertTrue(0 < gradient.histogram_value.sum_squares <= 1)
        self.assertEqual([event.step for event in read.Tensors("sample")], [10, 20, 30])
        with open(self.run_folder / "samples.jsonl", encoding="utf-8") as file:
            samples = [json.loads(line) for line in file]
        self.assertEqual(["    " + sample["text"].replace("\n", "\n    ") for sample in samples],
                         [event.tensor_proto.string_val[0].decode() for event in read.Tensors("sample")])


if __name__ == "__main__":
    unittest.main()
