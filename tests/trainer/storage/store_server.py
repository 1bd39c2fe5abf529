#!/usr/bin/env python3
"""An object store for a test: moto (S3) or gcp-storage-emulator (Google Cloud Storage), in memory, with a bucket `bucket`.

  store_server.py s3|gcs [--port N] [--cut] [--check-keys] [--tls FOLDER]

Prints `ready PORT` once it answers. Exit code 77: the packages are not installed.
  --cut         bodies of objects end after half their length, with the connection
  --tls FOLDER  https://localhost, by a certificate that is written to FOLDER/cert.pem
  --check-keys  S3 requests need good credentials (there are none that moto takes for good)
"""

import argparse
import datetime
import logging
import os
import ssl
import sys
import threading
import time
from pathlib import Path

BUCKET = "bucket"


def cutting(app):
    """The WSGI application, with half of each long body."""

    def cut(environ, start_response):
        body = b"".join(app(environ, start_response))
        if environ["REQUEST_METHOD"] == "GET" and len(body) > 5000:
            body = body[: len(body) // 2]
        return [body]

    return cut


def make_certificate(folder):
    """Of itself alone, for `localhost`; returns the context of a server that shows it."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256()))
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    Path(folder, "cert.pem").write_bytes(certificate.public_bytes(pem))
    Path(folder, "key.pem").write_bytes(secret)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(Path(folder, "cert.pem"), Path(folder, "key.pem"))
    return context


def serve_s3(args):
    if args.check_keys:
        os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = "1"  # making the bucket
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server
    from werkzeug.test import Client

    app = DomainDispatcherApplication(create_backend_app)
    key = "AWS4-HMAC-SHA256 Credential=k/20260101/us-east-1/s3/aws4_request"
    Client(app).put(f"/{BUCKET}", headers={"Authorization": key})  # before anybody can look
    context = make_certificate(args.tls) if args.tls else None
    app = cutting(app) if args.cut else app
    server = make_server("127.0.0.1", args.port, app, threaded=True, ssl_context=context)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


def serve_gcs(args):
    from gcp_storage_emulator.server import create_server

    if args.tls:
        from http import server as http_server

        context = make_certificate(args.tls)

        class TlsServer(http_server.HTTPServer):
            def get_request(self):
                connection, address = super().get_request()
                return context.wrap_socket(connection, server_side=True), address

        http_server.HTTPServer = TlsServer  # what the emulator makes
    server = create_server("127.0.0.1", args.port, in_memory=True, default_bucket=BUCKET)
    server.start()
    return server._api._httpd.server_port


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("s3", "gcs"))
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--tls")
    parser.add_argument("--cut", action="store_true")
    parser.add_argument("--check-keys", action="store_true")
    args = parser.parse_args()
    parent = os.getppid()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    try:
        port = serve_s3(args) if args.kind == "s3" else serve_gcs(args)
    except ImportError as error:
        print(f"skipped: {error}", flush=True)
        return 77
    print(f"ready {port}", flush=True)
    while os.getppid() == parent:  # a test that died leaves no server behind
        time.sleep(1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
