"""Image classification beside Python: scikit-learn's digits and its metrics, Pillow's decoders, torch's batch normalization."""

import importlib.util
import json
import subprocess
import sys
import unittest
from pathlib import Path

if not all(importlib.util.find_spec(name) for name in ("sklearn", "PIL", "numpy", "torch", "safetensors")):
    print("[skipped] all of it: no Python with scikit-learn, Pillow, torch and safetensors")
    sys.exit(0)
import numpy
import torch
from PIL import Image
from safetensors.torch import load_file
from sklearn.metrics import accuracy_score, confusion_matrix, log_loss

from support import ROOT, TrainerTest

SHORT = ["trainer_config.max_epochs=1"]


def probabilities(predictions):
    return numpy.array([[answer["probability"] for answer in one["answers"]] for one in predictions])


class Images(TrainerTest):
    def setUp(self):
        super().setUp()
        subprocess.run([sys.executable, ROOT / "scripts/make_digits.py", "data/digits", "--png"], cwd=self.folder,
                       check=True, stdout=subprocess.DEVNULL)

    def train(self, *overrides):
        self.trainer("--config", ROOT / "configs/digits.yaml", "trainer_config.snapshot_path=snapshot.pt", *overrides)

    def predict(self, path):
        return json.loads(self.trainer("predict", "--snapshot", "snapshot.pt", "--input", path, "--json"))["predictions"]

    def test_the_recipe_reaches_97_percent_and_its_metrics_are_those_of_scikit_learn(self):
        self.train()
        report = json.loads(self.trainer("eval", "--snapshot", "snapshot.pt", "--json"))
        self.assertGreaterEqual(report["accuracy"], 0.97)
        predictions = self.predict("data/digits/png/test")
        truth = [Path(one["input"]).parent.name for one in predictions]
        self.assertEqual(len(truth), 360)
        self.assertAlmostEqual(accuracy_score(truth, [one["label"] for one in predictions]), report["accuracy"], places=6)
        matrix = report["confusion_matrix"]
        self.assertEqual(matrix["labels"], [str(i) for i in range(10)])
        self.assertEqual(matrix["counts"], confusion_matrix(truth, [one["label"] for one in predictions]).tolist())
        self.assertAlmostEqual(log_loss(truth, probabilities(predictions)), report["loss"], places=5)

    def test_jpeg_and_png_files_are_decoded_as_pillow_does(self):
        self.train(*SHORT, "image_config.channels=3", "data_config.path=data/digits/png/train", "data_config.eval_path=null")
        random = numpy.random.default_rng(0)
        for kind in ("jpg", "png", "pillow"):
            (self.folder / kind).mkdir()
        for i in range(12):
            pixels = random.integers(0, 256, (8, 8, 3), dtype=numpy.uint8)
            mode = ("RGB", "L")[i % 2]
            image = Image.fromarray(pixels).convert(mode)
            image.save(self.folder / f"jpg/{i:02}.jpg", quality=60 + i, subsampling=i % 3)
            image.save(self.folder / f"png/{i:02}.png")
            Image.open(self.folder / f"jpg/{i:02}.jpg").convert("RGB").save(self.folder / f"pillow/{i:02}.png")
        by_us, by_pillow = probabilities(self.predict("jpg")), probabilities(self.predict("pillow"))
        numpy.testing.assert_array_equal(by_us, by_pillow)
        self.assertGreater(numpy.abs(by_us - probabilities(self.predict("png"))).max(), 1e-6)

    def test_images_of_another_size_are_resized_as_pillow_does(self):
        self.train(*SHORT, "image_config.size=8")
        random = numpy.random.default_rng(1)
        for kind in ("large", "pillow"):
            (self.folder / kind).mkdir()
        for i, (width, height) in enumerate([(16, 16), (5, 7), (31, 20), (8, 40)]):
            image = Image.fromarray(random.integers(0, 256, (height, width), dtype=numpy.uint8))
            image.save(self.folder / f"large/{i}.png")
            image.resize((8, 8), Image.Resampling.BILINEAR).save(self.folder / f"pillow/{i}.png")
        # One step of 255 in a few pixels: Pillow rounds between its two passes.
        numpy.testing.assert_allclose(probabilities(self.predict("large")), probabilities(self.predict("pillow")), atol=0.02)

    def test_a_network_with_batch_normalization_gives_torch_s_probabilities(self):
        self.train(*SHORT, "image_config.batch_norm=local", "image_config.n_layer=3")
        state = load_file(self.folder / "snapshot.pt")
        x = torch.stack([torch.tensor(numpy.array(Image.open(path)), dtype=torch.float32)[None] / 255 * 2 - 1
                         for path in sorted((self.folder / "data/digits/png/test").glob("*/*.png"))])
        for i in range(3):
            x = torch.conv2d(x, state[f"model.conv_{i}.weight"], padding=1)
            x = torch.nn.functional.batch_norm(
                x, state[f"buffer.norm_{i}.running_mean"], state[f"buffer.norm_{i}.running_var"],
                state[f"model.norm_{i}.weight"], state[f"model.norm_{i}.bias"])
            x = torch.max_pool2d(x.relu(), 2)
        x = torch.nn.functional.linear(x.flatten(1), state["model.dense_0.weight"], state["model.dense_0.bias"]).relu()
        expected = torch.nn.functional.linear(x, state["model.head.weight"], state["model.head.bias"]).softmax(1)
        numpy.testing.assert_allclose(probabilities(self.predict("data/digits/png/test")), expected.numpy(), atol=1e-5)


if __name__ == "__main__":
    unittest.main()
