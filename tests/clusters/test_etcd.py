"""Jobs whose host and epochs are in a real etcd, on this machine: agents that are killed and paused, an etcd that stops and
starts again, TLS and passwords, and what users get wrong.

Each worker appends a line to a common file every 50 ms (ledger_job.Job's ledger). Needs etcd and etcdctl; skipped by name
otherwise.
"""

import http.server
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/support"))
import etcd_server  # noqa: E402
import ledger_job  # noqa: E402
import network_hosts as net  # noqa: E402
import ports  # noqa: E402

DDP_RUN = str(net.DDP_RUN)
LEASE = 3
LONG = {"Faults.test_a_host_that_leaves_hands_its_place_over", "Faults.test_all_nodes_are_killed_and_started_again"}
CONF = f"{net.CONF},lease_ttl={LEASE}"


class LocalNode(net.Node):
    """On this machine, without a namespace."""

    def __init__(self, nnodes, endpoint, *more, program, conf, backend="etcd"):
        self.process = subprocess.Popen(
            [DDP_RUN, f"--nnodes={nnodes}", f"--rdzv-backend={backend}", f"--rdzv-endpoint={endpoint}", f"--rdzv-conf={conf}", *more,
             *program], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        os.set_blocking(self.process.stdout.fileno(), False)
        self.text, self.read_to = "", 0


class LocalJob(ledger_job.Job):
    conf = CONF

    def start(self, i, *more):
        worker = f"LEDGER={self.ledger} LEDGER_NODE={i}; {ledger_job.LEDGER}"
        if i in self.nodes:
            self.past.append(self.nodes[i])
        self.nodes[i] = LocalNode(self.nnodes, self.endpoints, *self.more, *more, program=["--no-python", "sh", "-c", worker],
                                  conf=self.conf)

    def wait_for_round_after(self, epoch, nodes):
        while self.wait_for_round(nodes) <= epoch:  # what they have written just before
            time.sleep(0.1)


def run_alone(endpoint, conf="", backend="etcd", *more):
    """A node that is to fail: exit code and what it printed."""
    conf = ["--rdzv-conf=" + conf] if conf else []
    where = ["--rdzv-endpoint=" + endpoint] if endpoint else []
    done = subprocess.run([DDP_RUN, "--nnodes=1:2", f"--rdzv-backend={backend}", *where, *conf, *more, "--no-python", "true"],
                          capture_output=True, text=True, timeout=net.PATIENCE)
    return done.returncode, done.stderr


class EtcdTest(unittest.TestCase):
    def setUp(self):
        wrong = etcd_server.missing()
        if wrong:
            print(f"[skipped] all of it: no etcd here\n  {wrong}", flush=True)
            self.skipTest(wrong)
        self.folder = tempfile.mkdtemp(prefix="ddp_etcd_")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def etcd(self, **how):
        server = etcd_server.Etcd(self.folder, **how)
        self.addCleanup(server.kill)
        return server

    def job(self, nnodes, server, *more, conf=CONF):
        job = LocalJob(tempfile.mkdtemp(dir=self.folder), nnodes, server.endpoint, more=["--rdzv-id=a/job", *more])
        job.conf = conf
        self.addCleanup(job.end)
        return job

    def begin(self, count, *arguments, **how):
        return self.job(*arguments, **how).begin(count)

    def host_of(self, server, job):
        """The node that hosts, by the port of its place in etcd."""
        place = server.ctl("get", "--prefix", "--print-value-only", "/torchelastic/p2p/a%2Fjob/host")
        port = int(re.search(r'"port":(\d+)', place)[1])
        listening = subprocess.run(["ss", "-Hltnp", f"sport = :{port}"], capture_output=True, text=True, check=True).stdout
        pids = {int(pid) for pid in re.findall(r"pid=(\d+)", listening)}
        return next(i for i in job.alive() if pids & set(job.agents(i)))


class Faults(EtcdTest):
    def test_a_job_ends_with_the_workers_exit_code_and_leaves_no_keys(self):
        server = self.etcd().wait()
        for code in (0, 3):
            program = ["--no-python", "sh", "-c", f"echo rank $RANK of $WORLD_SIZE; exit {code}"]
            nodes = [LocalNode("2", server.endpoint, "--rdzv-id=a/job", program=program, conf=CONF) for _ in range(2)]
            for node in nodes:
                self.addCleanup(node.end)
            self.assertEqual([node.wait_for_end() for node in nodes], [code, code], nodes[0].text + nodes[1].text)
            self.assertIn("of 2", nodes[0].text)
            self.assertEqual(server.ctl("get", "--prefix", "/torchelastic"), "")

    def test_a_killed_host_is_replaced_before_its_lease_has_run_out(self):
        server = self.etcd().wait()
        job = self.begin(3, "2:3", server, conf=f"{net.CONF},lease_ttl=120")
        host = self.host_of(server, job)
        before = max(line.epoch for line in job.lines())
        job.kill(host)
        self.assertEqual(job.wait_for_round({0, 1, 2} - {host}, seconds=60), before + 1)
        job.start(host)
        job.wait_for_round({0, 1, 2})
        job.check()

    def test_a_host_that_leaves_hands_its_place_over(self):
        server = self.etcd().wait()
        job = self.begin(2, "1:2", server, conf=f"{net.CONF},lease_ttl=120")
        host = self.host_of(server, job)
        job.nodes[host].process.send_signal(signal.SIGTERM)
        job.wait_for_round({1 - host}, seconds=60)
        job.check()

    def test_a_host_that_was_paused_beyond_its_lease_stops_its_workers_first(self):
        server = self.etcd().wait()
        job = self.begin(2, "1:2", server)
        host = self.host_of(server, job)
        for _ in job.pause(host, 0):
            job.wait_for_round_of(1 - host)
        job.nodes[host].wait("this agent was suspended for .* longer than its lease in etcd")
        job.wait_for_round({0, 1})
        job.check()

    def test_a_round_outlives_an_outage_of_etcd_and_the_next_one_waits_for_it(self):
        server = self.etcd().wait()
        job = self.begin(2, "1:3", server)
        before, host = job.epochs(), self.host_of(server, job)
        server.stop()
        job.nodes[host].wait("etcd does not answer")
        job.start(2)
        job.nodes[2].wait(r"waiting for etcd at 127.0.0.1:\d+ \(127.0.0.1:\d+: Connection refused\)")
        time.sleep(3 * LEASE)  # the length of the outage
        self.assertEqual(job.epochs(), before, str(job))
        server.start()
        server.wait()
        job.wait_for_round({0, 1, 2})
        self.assertEqual(job.nodes[host].read().count("etcd does not answer"), 1, str(job))
        job.check()

    def test_a_round_ends_once_etcd_was_away_for_longer_than_the_outage_timeout(self):
        server = self.etcd().wait()
        job = self.begin(2, "1:2", server, conf=f"{CONF},outage_timeout=5")
        before = max(job.epochs())
        server.stop()
        for i in (0, 1):
            job.nodes[i].wait("the workers here are stopped|waiting for etcd")
        deadline = time.monotonic() + 30
        while job.at_work() and time.monotonic() < deadline:
            time.sleep(0.1)
        self.assertEqual(job.at_work(), set(), str(job))
        server.start()
        server.wait()
        job.wait_for_round_after(before, {0, 1})
        job.check()

    def test_all_nodes_are_killed_and_started_again(self):
        server = self.etcd().wait()
        job = self.begin(2, "2", server)
        net.lose_power([job.nodes[0], job.nodes[1]])  # no agent is left to end the job, whose keys would go with it
        job.start(0)
        job.start(1)
        job.wait_for_round_after(0, {0, 1})
        job.check()


class Access(EtcdTest):
    def certificates(self):
        """An authority, a server's certificate for 127.0.0.1 and a client's; another authority."""
        folder = Path(self.folder)
        for name in ("ca", "other"):
            self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                         "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem")
        for name in ("server", "client"):
            (folder / "extensions").write_text("subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n")
            self.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
                         "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.csr")
            self.openssl("x509", "-req", "-days", "2", "-in", folder / f"{name}.csr", "-CA", folder / "ca.pem", "-CAkey", folder / "ca.key",
                         "-CAcreateserial", "-extfile", folder / "extensions", "-out", folder / f"{name}.pem")
        return folder

    def openssl(self, *words):
        subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)

    def test_tls_with_client_certificates(self):
        folder = self.certificates()
        server = self.etcd(scheme="https", tls=[f"--cert-file={folder}/server.pem", f"--key-file={folder}/server.key",
                                                f"--trusted-ca-file={folder}/ca.pem", "--client-cert-auth"])
        server.wait(flags=[f"--cacert={folder}/ca.pem", f"--cert={folder}/client.pem", f"--key={folder}/client.key"])
        files = f"protocol=https,cacert={folder}/ca.pem,cert={folder}/client.pem,key={folder}/client.key"
        job = self.begin(2, "2", server, conf=f"{CONF},{files}")
        job.end()
        for conf, told in ((files.replace("cacert", "ca_cert").replace("ca.pem", "other.pem"), "TLS: certificate verify failed"),
                           (f"protocol=https,cacert={folder}/ca.pem", "TLS: .*certificate"),
                           ("read_timeout=2", r"it closed the connection \(does it serve TLS\? --rdzv-conf=protocol=https\)")):
            code, text = run_alone(server.endpoint, conf)
            self.assertEqual(code, 1, text)
            self.assertRegex(text, rf"^error: .*{server.endpoint}: {told}")
            self.assertEqual(len(text.splitlines()), 1, text)
        for conf, told in (("protocol=https,cacert=/nowhere.pem", "error: --rdzv-conf=cacert=/nowhere.pem: No such file or directory"),
                           (f"protocol=https,cert={folder}/client.pem,key={folder}/server.key", "error: --rdzv-conf=key=.*: key values mismatch"),
                           ("cacert=/x.pem", "error: --rdzv-conf: cacert and cert are for TLS; add protocol=https")):
            code, text = run_alone(server.endpoint, conf)
            self.assertRegex(text, told)
            self.assertEqual(code, 2, text)

    def test_users_and_passwords(self):
        server = self.etcd().wait()
        for words in (["user", "add", "root:secret"], ["user", "grant-role", "root", "root"], ["role", "add", "jobs"],
                      ["role", "grant-permission", "jobs", "--prefix=true", "readwrite", "/torchelastic/p2p/"],
                      ["user", "add", "ann:word"], ["user", "grant-role", "ann", "jobs"], ["auth", "enable"]):
            server.ctl(*words)
        right, wrong = Path(self.folder) / "right", Path(self.folder) / "wrong"
        right.write_text("word\n")
        wrong.write_text("sword\n")
        login = f"user=ann,password_file={right}"
        job = self.begin(2, "2", server, conf=f"{CONF},{login}")
        job.end()
        for conf, told in ((f"user=ann,password_file={wrong}", "user 'ann': etcdserver: authentication failed, invalid user ID or password"),
                           ("read_timeout=20", r"it needs a user \(--rdzv-conf=user=NAME,password_file=FILE\)"),
                           (f"{login},etcd_prefix=/mine", "user 'ann' may not use keys below /mine/: etcdserver: permission denied")):
            code, text = run_alone(server.endpoint, conf)
            self.assertRegex(text, rf"^error: etcd at {server.endpoint}: {told}")
            self.assertEqual((code, len(text.splitlines())), (1, 1), text)
        self.assertRegex(run_alone(server.endpoint, "user=ann,password=word")[1], "other users of this machine could read it")


class Mistakes(EtcdTest):
    def serve(self, body):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return f"127.0.0.1:{server.server_port}"

    def test_each_mistake_gets_one_line(self):
        closed = f"127.0.0.1:{ports.free_port()}"
        old = self.serve(b'{"etcdserver":"2.3.8","etcdcluster":"2.3.0"}')
        other = self.serve(b"<html>It works!</html>")
        for endpoint, conf, code, told in (
                ("", "", 2, "--rdzv-backend=etcd: --rdzv-endpoint is needed: HOST[:PORT],... of etcd, the same on all nodes"),
                (":2379", "", 2, "--rdzv-endpoint=:2379: no host in it"),
                (closed, "read_timeout=2", 1, f"cannot reach etcd at {closed} within 2 s: {closed}: Connection refused; check"),
                (old, "", 1, f"etcd at {old}: it is etcd 2.3.8; API v3 of etcd 3.4 or newer is needed"),
                (f"{closed},{other}", "", 1, f"etcd at {other}: it is not an etcd"),
                (other, "", 1, f"etcd at {other}: it is not an etcd"),
                (other, "protocol=https", 1, f"etcd at {other}: it does not speak TLS (--rdzv-conf=protocol=http)"),
                (other, "protocol=ftp", 2, "--rdzv-conf=protocol=ftp: must be http or https"),
                (other, "lease_ttl=1", 2, "--rdzv-conf=lease_ttl=1: must be a whole number of seconds, at least 2"),
                ("nowhere.invalid", "read_timeout=2", 1, "the name 'nowhere.invalid' is not known")):
            with self.subTest(told=told):
                found, text = run_alone(endpoint, conf)
                self.assertIn("error: ", text)
                self.assertIn(told, text)
                self.assertEqual((found, len(text.splitlines())), (code, 1), text)

    def test_etcd_without_its_gateway_and_foreign_keys(self):
        server = self.etcd(tls=["--enable-grpc-gateway=false"]).wait()
        self.assertIn("its JSON gateway is off (etcd --enable-grpc-gateway)", run_alone(server.endpoint)[1])
        server.stop()
        server.tls = []
        server.start()
        server.wait().ctl("put", "/torchelastic/p2p/none/host", "some text")
        code, text = run_alone(f"http://{server.endpoint}", backend="etcd-v2")
        self.assertIn("the keys below /torchelastic/p2p/none/ are not a ddp-run job's", text)
        self.assertEqual(code, 1)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # clean up as well
    unittest.main(verbosity=2)
