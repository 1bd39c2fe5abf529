#!/usr/bin/env python3
"""An object store for a test: moto (S3) or gcp-storage-emulator (Google Cloud Storage), in memory, with a bucket `bucket`.

  store_server.py s3|gcs [--port N] [--cut] [--check-keys]

Prints `ready PORT` once it answers. Exit code 77: the packages are not installed.
  --cut         bodies of objects end after half their length, with the connection
  --check-keys  S3 requests need good credentials (there are none that moto takes for good)
"""

import argparse
import logging
import os
import sys
import threading
import time

BUCKET = "bucket"


def cutting(app):
    """The WSGI application, with half of each long body."""

    def cut(environ, start_response):
        body = b"".join(app(environ, start_response))
        if environ["REQUEST_METHOD"] == "GET" and len(body) > 5000:
            body = body[: len(body) // 2]
        return [body]

    return cut


def serve_s3(args):
    if args.check_keys:
        os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = "1"  # making the bucket
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server
    from werkzeug.test import Client

    app = DomainDispatcherApplication(create_backend_app)
    key = "AWS4-HMAC-SHA256 Credential=k/20260101/us-east-1/s3/aws4_request"
    Client(app).put(f"/{BUCKET}", headers={"Authorization": key})  # before anybody can look
    server = make_server("127.0.0.1", args.port, cutting(app) if args.cut else app, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


def serve_gcs(args):
    from gcp_storage_emulator.server import create_server

    server = create_server("127.0.0.1", args.port, in_memory=True, default_bucket=BUCKET)
    server.start()
    return server._api._httpd.server_port


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("s3", "gcs"))
    parser.add_argument("--port", type=int, default=0)
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
