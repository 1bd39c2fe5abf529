"""The page of `trainer report` in a headless Chromium: what it shows, hover, zoom, keyboard, foreign text."""

import json
import math
import os
import sys
import unittest

from browser import Browser, chromium
from metrics_probe import ProbeTest

if chromium() is None:
    print("[skipped] all of it: no chromium on the PATH")
    sys.exit(0)


def loss_at(step):
    return 4.2 * math.exp(-step / 400) + 1.4 + 0.1 * math.sin(step * 1.7)


def script(first, last, every=10, factor=1.0):
    lines = [f"begin {first}"]
    for step in range(first + every, last + 1, every):
        lines.append(f"train {step} {factor * loss_at(step)} lr {3e-4 * min(1, step / 100)} grad_norm {1 + 1 / step} "
                     f"tokens_per_second {12000 + 500 * math.sin(step)}")
        if step % 100 == 0:
            lines.append(f"eval {step} {factor * loss_at(step) + 0.2}")
    return "\n".join(lines) + "\n"


class ReportPage(ProbeTest):
    @classmethod
    def setUpClass(cls):
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.close)

    def open_page(self, *folders):
        page = self.report(*folders)
        self.browser.complaints.clear()
        self.browser.requests.clear()
        self.browser.open(page)
        self.browser.frame()
        if pictures := os.environ.get("DDP_PICTURES"):  # a folder to look at what the tests saw
            self.addCleanup(self.browser.screenshot, f"{pictures}/{self._testMethodName}.png")
        self.addCleanup(lambda: self.assertEqual(self.browser.complaints, []))
        return page

    def info(self, folder, **config):
        (folder / "run_info.json").write_text(json.dumps({"config": {"trainer_config": config}, "environment": {"host": "h1", "ranks": 2}}))

    def chart(self, metric):
        """Its place on the screen: x of a step, y of the middle."""
        box = self.browser.value(
            f"(() => {{ const card = document.querySelector('[data-metric={metric}]'); card.scrollIntoView({{block: 'center'}});"
            "const box = card.querySelector('canvas.front').getBoundingClientRect();"
            "return [box.left, box.top, box.width, box.height, +document.body.dataset.from, +document.body.dataset.to]; })()")
        left, top, width, height, first, last = box
        return lambda step: left + 80 + (step - first) / (last - first) * (width - 80 - 14), top + height / 2

    def tip(self, metric):
        self.browser.frame()
        return self.browser.value(f"(() => {{ const tip = document.querySelector('[data-metric={metric}] .tip');"
                                  "return tip.hidden ? null : tip.innerText; })()")

    def range(self):
        self.browser.frame()
        return self.browser.value("[+document.body.dataset.from, +document.body.dataset.to]")

    def text(self, selector="body"):
        return self.browser.value(f"document.querySelector({json.dumps(selector)}).innerText")

    def test_it_shows_the_curves_and_asks_no_network(self):
        self.attempt(script(0, 1000))
        self.info(self.run_folder, batch_size=8)
        self.open_page(self.run_folder)
        titles = self.browser.value("[...document.querySelectorAll('.chart h3')].map(node => node.innerText)")
        self.assertEqual(titles, ["Loss", "Learning rate", "Throughput", "Gradient norm"])
        label = self.browser.value("document.querySelector('[data-metric=loss] canvas.front').ariaLabel")
        self.assertIn(f"train: {loss_at(10):.6g} at step 10", label)
        painted = self.browser.value(
            "(() => { const canvas = document.querySelector('[data-metric=loss] canvas');"
            "return canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.filter((value, i) => i % 4 === 3 && value > 0).length; })()")
        self.assertGreater(painted, 2000)
        self.assertEqual([url for url in self.browser.requests if not url.startswith(("file:", "data:"))], [])

    def test_only_what_differs_from_the_defaults_is_open_and_samples_come_first(self):
        self.attempt(script(0, 100))
        self.info(self.run_folder, batch_size=7, seed=1337, grad_norm_clip=1.0)
        (self.run_folder / "samples.jsonl").write_text("".join(json.dumps({"step": step, "tag": "sample", "text": f"text {step}", "time": 1}) + "\n" for step in (50, 100)))
        self.open_page(self.run_folder)
        rows = self.browser.value("[...document.querySelector('#texts [aria-label=Configuration] table').rows].map(row => row.innerText.split('\\t'))")
        self.assertEqual(rows, [["Key", "run", "default"], ["trainer_config.batch_size", "7", "216"]])
        self.assertNotIn("seed", self.text("#texts"))
        self.browser.value("document.querySelector('#texts [aria-label=Configuration] summary').click()")
        self.assertIn("trainer_config.seed", self.text("#texts"))
        self.assertEqual(self.browser.value("[...document.querySelectorAll('#texts h2')].map(node => node.innerText)"), ["Samples", "Configuration", "Environment"])
        self.assertIn("text 100", self.text("#texts"))
        self.assertNotIn("text 50", self.text("#texts"))

    def test_curves_of_the_same_shape_share_a_chart_that_marks_the_best(self):
        lines = [{"step": step, "epoch": 1, "split": "eval", "loss": loss, "perplexity": math.exp(loss), "accuracy": 1 - loss / 2, "time": step}
                 for step, loss in ((100, 1.5), (200, 0.5), (300, 1.0))]
        (self.run_folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        self.open_page(self.run_folder)
        self.assertEqual(self.browser.value("[...document.querySelectorAll('.chart h3')].map(node => node.innerText)"), ["Loss", "Accuracy"])
        for metric, best in (("loss", 0.5), ("accuracy", 0.75)):
            label = self.browser.value(f"document.querySelector('[data-metric={metric}] canvas.front').ariaLabel")
            self.assertIn(f"best {best} at step 200", label)
        x, y = self.chart("loss")
        self.browser.mouse("mouseMoved", x(200), y)
        self.assertRegex(self.tip("loss"), r"eval\s+0.5\s+Perplexity\s+1.64872")

    def test_a_phone_shows_all_without_scrolling_sideways(self):
        self.attempt(script(0, 560))
        self.attempt(script(500, 1000))
        self.info(self.run_folder, batch_size=7, snapshot_path="/a/folder/with/a/long/name/" + 8 * "below/" + "snapshot.pt")
        self.open_page(self.run_folder)
        self.browser.call("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=1, mobile=True)
        self.addCleanup(self.browser.call, "Emulation.setDeviceMetricsOverride", width=1400, height=1000, deviceScaleFactor=1, mobile=False)
        self.browser.frame()
        wider = self.browser.value("[document.documentElement, ...document.querySelectorAll('.scroll')].filter(node => node.scrollWidth > node.clientWidth).map(node => node.innerText)")
        self.assertEqual(wider, [])
        self.assertIn("Steps\n1,000", self.browser.value("[...document.querySelectorAll('#overview td')].map(node => node.dataset.label + '\\n' + node.innerText).join('\\n')"))

    def test_pointing_at_a_curve_gives_the_values_at_that_step(self):
        self.attempt(script(0, 1000))
        self.open_page(self.run_folder)
        x, y = self.chart("loss")
        self.browser.mouse("mouseMoved", x(500) + 1, y)
        tip = self.tip("loss")
        self.assertIn("step 500", tip)
        self.assertRegex(tip, rf"train\s+{loss_at(500):.6g}"[:-1])
        self.assertRegex(tip, rf"eval\s+{loss_at(500) + .2:.6g}"[:-1])
        self.browser.mouse("mouseMoved", x(733), y)
        self.assertIn("step 730", self.tip("loss"))
        self.browser.mouse("mouseMoved", 3, 3)
        self.assertIsNone(self.tip("loss"))

    def test_dragging_zooms_all_charts_and_a_double_click_shows_all(self):
        self.attempt(script(0, 1000))
        self.open_page(self.run_folder)
        self.assertEqual(self.range(), [10, 1000])
        x, y = self.chart("loss")
        self.browser.drag(x(400), x(600), y)
        first, last = self.range()
        self.assertAlmostEqual(first, 400, delta=3)
        self.assertAlmostEqual(last, 600, delta=3)
        x, y = self.chart("grad_norm")
        self.browser.mouse("mouseMoved", x(500), y)
        self.assertIn("step 500", self.tip("grad_norm"))
        self.assertFalse(self.browser.value("document.getElementById('reset').hidden"))
        self.browser.double_click(x(500), y)
        self.assertEqual(self.range(), [10, 1000])

    def test_the_keyboard_walks_along_the_values_and_zooms(self):
        self.attempt(script(0, 1000))
        self.open_page(self.run_folder)
        self.browser.value("document.querySelector('[data-metric=loss] canvas.front').focus()")
        for _ in range(3):
            self.browser.key("ArrowRight")
        self.assertIn("step 30", self.tip("loss"))
        self.browser.key("+")
        self.assertLess(self.range()[1], 600)
        self.browser.key("Escape")
        self.assertEqual(self.range(), [10, 1000])

    def test_continuations_are_marked_and_told(self):
        self.attempt(script(0, 560))
        self.attempt(script(500, 1000))
        self.open_page(self.run_folder)
        x, y = self.chart("loss")
        self.browser.mouse("mouseMoved", x(500), y)
        self.assertIn("continued from step 500", self.tip("loss"))
        self.assertIn("continued", self.text("#legend"))

    def test_a_run_of_several_jobs_has_one_account_and_its_best_is_by_its_own_metric(self):
        lines = [f"train {step} {loss_at(step)}" for step in (10, 20)]
        self.attempt("\n".join(["begin 0", lines[0], "eval 10 2.5 accuracy 0.75"]) + "\n")
        self.attempt("\n".join(["begin 10", lines[1], "eval 20 2.25 accuracy 0.5", "eval 25 3 accuracy 0.25"]) + "\n")
        self.info(self.run_folder, metric_for_best_model="accuracy")
        (self.run_folder / "run_summary.json").write_text(json.dumps({
            "outcome": "finished", "goodput": 0.5, "wall_seconds": 60.0, "restarts": [],
            "earlier_jobs": {"jobs": 1, "seconds": 120.0, "useful_seconds": 105.0, "restarts": 2}}))
        self.open_page(self.run_folder)
        cells = self.browser.value("[...document.querySelectorAll('#overview tbody td')].map(cell => cell.innerText)")
        self.assertEqual(cells, ["25", f"{loss_at(20):.6g} (step 20)", "accuracy 0.75 (step 10)", "–", "2", "3 min 0 s", "75.0 %", "finished"])

    def test_several_runs_are_compared_and_can_be_hidden(self):
        other = self.folder / "other"
        other.mkdir()
        self.attempt(script(0, 1000))
        self.attempt(script(0, 800, factor=1.1), other)
        self.info(self.run_folder, batch_size=8, seed=1)
        self.info(other, batch_size=16, seed=1)
        (other / "run_summary.json").write_text(json.dumps({"outcome": "finished", "goodput": 0.91, "restarts": [
            {"rank": 1, "cause": "SIGKILL", "lost_steps": 4, "to_detect": 0.25}]}))
        (self.run_folder / "samples.jsonl").write_text('{"step":900,"tag":"sample","text":"To be\\nor not","time":1}\n')
        self.open_page(self.run_folder, other)
        differing = self.browser.value("document.querySelector('#texts section .card > table').innerText")
        self.assertIn("batch_size", differing)
        self.assertNotIn("seed", differing)
        self.assertIn("SIGKILL", self.text("#texts"))
        self.assertIn("To be\nor not", self.text("#texts"))
        x, y = self.chart("loss")
        self.browser.mouse("mouseMoved", x(500), y)
        self.assertEqual(self.tip("loss").count("train"), 2)
        self.browser.value("document.querySelector('#legend button').click()")
        self.browser.mouse("mouseMoved", x(510), y)
        self.assertEqual(self.tip("loss").count("train"), 1)

    def test_a_confusion_matrix_has_rows_columns_recall_and_precision(self):
        self.attempt(script(0, 100) + "confusion eval 50 ham,spam 9 9 9 9\nconfusion eval 100 ham,<b>spam</b> 30 10 0 20\n"
                     "confusion test 100 ham,spam 1 0 0 3\n")
        self.open_page(self.run_folder)
        titles = self.browser.value("[...document.querySelectorAll('h2')].map(node => node.innerText)")
        self.assertIn("Confusion matrix: evaluation at step 100", titles)
        self.assertIn("Confusion matrix: test at step 100", titles)
        rows = self.browser.value("[...document.querySelector('.confusion').rows].map(row => [...row.cells].map(cell => cell.innerText))")
        self.assertEqual(rows[1:], [["true", "ham", "<b>spam</b>", "recall", "samples"], ["ham", "30", "10", "0.7500", "40"],
                                    ["<b>spam</b>", "", "20", "1.0000", "20"], ["precision", "1.0000", "0.6667", ""]])
        colours = self.browser.value("[...document.querySelectorAll('.confusion td.cell')].slice(0, 4).map(cell => getComputedStyle(cell).backgroundColor)")
        self.assertEqual(len(set(colours)), 4)

    def test_of_many_classes_those_with_the_most_mistakes_are_shown(self):
        size = 40
        counts = [5 if i == k else 1 if {i, k} == {3, 37} else 0 for i in range(size) for k in range(size)]
        self.attempt(script(0, 100) + f"confusion eval 100 {','.join(f'class{i}' for i in range(size))} {' '.join(map(str, counts))}\n")
        self.open_page(self.run_folder)
        rows = self.browser.value("[...document.querySelectorAll('.confusion tbody th')].map(node => node.innerText)")
        self.assertEqual(len(rows), 31)
        self.assertLessEqual({"class3", "class37", "10 others"}, set(rows))
        self.assertIn("Of 40 classes, the 30 with the most mistakes are shown; the others are counted together.", self.text("#texts"))

    def test_foreign_text_stays_text(self):
        self.attempt(script(0, 100))
        evil = "</script><img src=x onerror=\"document.title='bad'\"><b>&amp;"
        self.info(self.run_folder, name=evil)
        (self.run_folder / "samples.jsonl").write_text(json.dumps({"step": 1, "tag": evil, "text": evil, "time": 1}) + "\n")
        self.open_page(self.run_folder)
        self.assertIn(evil, self.text("#texts"))
        self.assertEqual(self.browser.value("document.images.length"), 0)

    def test_dark_and_light_differ(self):
        self.attempt(script(0, 100))
        self.open_page(self.run_folder)
        background = "getComputedStyle(document.body).backgroundColor"
        before = self.browser.value(background)
        self.browser.value("document.getElementById('theme').click()")
        self.assertNotEqual(self.browser.value(background), before)
        if pictures := os.environ.get("DDP_PICTURES"):
            self.browser.screenshot(f"{pictures}/dark.png")

    def test_a_page_of_a_long_run_stays_small(self):
        with open(self.run_folder / "metrics.jsonl", "w", encoding="utf-8") as file:
            for step in range(1, 100_001):
                file.write(f'{{"step":{step},"epoch":{step / 5e4},"split":"train","loss":{loss_at(step / 50):.7f},"lr":0.0003,'
                           f'"grad_norm":{1 + math.sin(step) / 3:.6f},"tokens_per_second":{12000 + step % 97},"time":{1.7e9 + step}}}\n')
        page = self.open_page(self.run_folder)
        self.assertLess(page.stat().st_size, 1_000_000)
        x, y = self.chart("loss")
        self.browser.mouse("mouseMoved", x(50_000), y)
        self.assertRegex(self.tip("loss"), r"step (49|50),\d\d\d")


if __name__ == "__main__":
    unittest.main()
