"""The manifests below examples/kubernetes/: their fields, and their ddp-run as the cluster starts it."""

import re
import subprocess
import sys
import unittest

from ports import free_port
from support import EXAMPLES, ROOT, ExampleTest

try:
    import yaml
except ImportError:
    print("[skipped] all of it: no Python with PyYAML")
    sys.exit(0)

# The fields that are used, with their types; a name with ? may be missing. Checked: nothing else is there.
CONTAINER = {"name": str, "image": str, "command": [str], "args": [str], "env?": list, "ports?": list,
             "startupProbe?": {"httpGet": {"path": str, "port": str}, "periodSeconds": int, "failureThreshold": int},
             "resources": {"limits": dict}, "volumeMounts?": [{"name": str, "mountPath": str}]}
POD = {"restartPolicy?": str, "subdomain?": str, "terminationGracePeriodSeconds": int, "containers": [CONTAINER],
       "volumes?": list}
TEMPLATE = {"metadata?": {"labels": dict}, "spec": POD}
REPLICAS = {"replicas": int, "restartPolicy": str, "template": TEMPLATE}
HEAD = {"apiVersion": str, "kind": str, "metadata": {"name": str}}
SCHEMAS = {
    ("v1", "Service"): {"clusterIP": str, "publishNotReadyAddresses": bool, "selector": dict,
                        "ports": [{"name": str, "port": int}]},
    ("batch/v1", "Job"): {"completionMode": str, "completions": int, "parallelism": int, "backoffLimit": int,
                          "podFailurePolicy": {"rules": [dict]}, "template": TEMPLATE},
    ("apps/v1", "StatefulSet"): {"serviceName": str, "replicas": int, "podManagementPolicy": str,
                                 "selector": {"matchLabels": dict}, "template": TEMPLATE},
    ("kubeflow.org/v1", "PyTorchJob"): {"nprocPerNode": str, "runPolicy": {"cleanPodPolicy": str, "backoffLimit": int},
                                        "pytorchReplicaSpecs": {"Master": REPLICAS, "Worker": REPLICAS}},
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"): {
        "runtimeRef": {"name": str},
        "trainer": {"image": str, "command": [str], "args": [str], "numNodes": int, "numProcPerNode": int,
                    "resourcesPerNode": {"limits": dict}}},
}


def problems(value, schema, at):
    if isinstance(schema, dict):
        if not isinstance(value, dict):
            return [f"{at}: no mapping"]
        names = {name.rstrip("?"): part for name, part in schema.items()}
        found = [f"{at}.{name}: unknown" for name in value if name not in names]
        found += [f"{at}.{name}: missing" for name in schema if not name.endswith("?") and name not in value]
        return found + [line for name, part in names.items() if name in value
                        for line in problems(value[name], part, f"{at}.{name}")]
    if isinstance(schema, list):
        if not isinstance(value, list) or not value:
            return [f"{at}: no list"]
        return [line for i, one in enumerate(value) for line in problems(one, schema[0], f"{at}[{i}]")]
    return [] if type(value) is schema else [f"{at}: {value!r} is no {schema.__name__}"]


def documents(name):
    return list(yaml.safe_load_all((EXAMPLES / "kubernetes" / name).read_text()))


def containers(document):
    spec = document["spec"]
    if document["kind"] == "TrainJob":
        return [spec["trainer"]]
    templates = [part["template"] for part in spec.get("pytorchReplicaSpecs", {"only": spec}).values()
                 if "template" in part]
    return [container for template in templates for container in template["spec"]["containers"]]


class Manifests(unittest.TestCase):
    files = sorted((EXAMPLES / "kubernetes").glob("*.yaml"))

    def test_every_field_is_one_of_its_kind(self):
        self.assertGreaterEqual(len(self.files), 4)
        for file in self.files:
            for document in documents(file.name):
                schema = {**HEAD, "spec": SCHEMAS[document["apiVersion"], document["kind"]]}
                self.assertEqual(problems(document, schema, document["kind"]), [], file.name)

    def test_the_check_finds_a_misspelt_field_and_a_wrong_type(self):
        document = documents("trainjob.yaml")[0]
        document["spec"]["trainer"]["numNode"] = document["spec"]["trainer"].pop("numNodes")
        document["spec"]["trainer"]["image"] = 3
        schema = {**HEAD, "spec": SCHEMAS[document["apiVersion"], document["kind"]]}
        self.assertEqual(problems(document, schema, "j"),
                         ["j.spec.trainer.numNode: unknown", "j.spec.trainer.numNodes: missing",
                          "j.spec.trainer.image: 3 is no str"])

    def test_names_fit_together(self):
        for file in self.files:
            service, *workloads = documents(file.name)
            if service["kind"] != "Service":
                continue
            for workload in workloads:
                self.check_names(service, workload)

    def check_names(self, service, workload):
        name, spec = service["metadata"]["name"], workload["spec"]
        self.assertEqual(service["spec"]["clusterIP"], "None")
        self.assertEqual(spec.get("serviceName", spec["template"]["spec"].get("subdomain")), name)
        labels = spec["template"]["metadata"]["labels"]
        if workload["kind"] == "Job":  # which labels its pods itself
            labels = {**labels, "job-name": workload["metadata"]["name"]}
        self.assertLessEqual(service["spec"]["selector"].items(), labels.items())
        environment = {entry["name"]: entry.get("value") for entry in containers(workload)[0]["env"]}
        endpoint = environment.get("PET_RDZV_ENDPOINT") or "{PET_MASTER_ADDR}:{PET_MASTER_PORT}".format(**environment)
        host = name if "PET_RDZV_ENDPOINT" in environment else f"{workload['metadata']['name']}-0.{name}"
        self.assertEqual(endpoint, f"{host}:{service['spec']['ports'][0]['port']}")
        nodes = environment["PET_NNODES"].split(":")[-1]
        self.assertEqual(int(nodes), spec.get("completions", spec.get("replicas")))

    def test_the_grace_of_ddp_run_fits_into_the_pods(self):
        for file in self.files:
            for document in documents(file.name):
                for container in containers(document) if document["kind"] != "Service" else []:
                    grace = next(int(arg.split("=")[1]) for arg in container["args"] if "--shutdown-timeout" in arg)
                    self.assertLess(grace, 120)

    def test_exit_codes_that_end_the_job_are_those_of_ddp_run(self):
        rules = documents("indexed-job.yaml")[1]["spec"]["podFailurePolicy"]["rules"]
        codes = rules[0]["onExitCodes"]["values"]
        known = re.findall(r"^  (\d+) +\S", (ROOT / "tests/launcher/cli/help.golden").read_text(), re.MULTILINE)
        self.assertLessEqual({str(code) for code in codes}, set(known))
        self.assertNotIn(75, codes)


class Pods(ExampleTest):
    """What the operators set, according to their sources (training-operator, trainer)."""

    def node(self, arguments, **environment):
        return self.run_example(self.bin / "ddp-run", "--dry-run", *arguments, **environment)

    def arguments(self, name):
        document = [one for one in documents(name) if one["kind"] != "Service"][0]
        return containers(document)[0]["args"]

    def dry_run(self, name, **environment):
        run = self.node(self.arguments(name), **environment)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual([line for line in run.stderr.splitlines() if "ignored" in line], [])
        return run.stdout

    def test_trainer_v2(self):
        text = self.dry_run("trainjob.yaml", PET_NNODES="2", PET_NPROC_PER_NODE="2", PET_NODE_RANK="1",
                            PET_MASTER_ADDR="train-node-0-0.train", PET_MASTER_PORT="29500")
        self.assertIn("MASTER_ADDR=train-node-0-0.train", text.replace("'", ""))
        self.assertIn("RANK=3", text.replace("'", ""))
        self.assertIn("WORLD_SIZE=4", text.replace("'", ""))

    def test_a_pytorchjob_whose_pod_has_rank_and_world_size_of_its_own(self):
        text = self.dry_run("pytorchjob.yaml", PET_NNODES="2", PET_NPROC_PER_NODE="2", PET_NODE_RANK="1",
                            PET_MASTER_ADDR="train-master-0", PET_MASTER_PORT="23456", RANK="1", WORLD_SIZE="2",
                            MASTER_ADDR="train-master-0", MASTER_PORT="23456", PYTHONUNBUFFERED="1").replace("'", "")
        self.assertIn(" RANK=2", text)
        self.assertIn("WORLD_SIZE=4", text)
        self.assertIn("LOCAL_RANK=1", text)

    def test_an_elastic_pytorchjob(self):
        run = self.node(["trainer"], PET_NNODES="1:2", PET_NPROC_PER_NODE="2", PET_RDZV_BACKEND="c10d",
                        PET_RDZV_ENDPOINT="train-worker-0:23456", PET_RDZV_ID="train", PET_MAX_RESTARTS="100",
                        PET_RDZV_CONF="timeout=10,read_timeout=5", PET_STANDALONE="0")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("TORCHELASTIC_RUN_ID=train", run.stdout.replace("'", ""))

    def test_pods_that_find_each_other_only_after_a_while(self):
        """The name of the first pod appears in DNS after the second has begun to ask for it."""
        lookups = self.folder / "lookups"
        self.fake("getent", f"""#!/bin/sh
echo x >> {lookups}
[ "$(wc -l < {lookups})" -gt 3 ] && echo "127.0.0.1 STREAM late-0.late"
exit 0
""")
        port = free_port()
        pods = [subprocess.Popen([self.bin / "ddp-run", self.bin / "trainer"],
                                 env=self.environment(PET_NNODES="2", PET_NODE_RANK=str(rank), PET_NPROC_PER_NODE="1",
                                                      PET_MASTER_ADDR="late-0.late", PET_MASTER_PORT=str(port)),
                                 stderr=subprocess.PIPE, text=True) for rank in (1, 0)]
        for pod in pods:
            _, errors = pod.communicate(timeout=60)
            self.assertEqual(pod.returncode, 0, errors)
        self.assertEqual([worker["rank"] for worker in self.noted()], ["0", "1"])
        self.assertGreater(len(lookups.read_text().splitlines()), 3)


if __name__ == "__main__":
    unittest.main()
