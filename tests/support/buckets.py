"""A bucket of an S3-compatible server of this machine, without a network."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


def needs(*modules: str) -> pytest.MarkDecorator:
    """Skip a test where one of these modules is not installed."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    why = f"this Python has no {', '.join(missing)}: pip install 'bufdb[remote,remote-test]'"
    return pytest.mark.skipif(bool(missing), reason=why)


needs_s3 = needs("moto", "boto3", "s3fs")
lenient = pytest.mark.filterwarnings("ignore")
"""The libraries of others warn of each other."""


@contextmanager
def s3_bucket(monkeypatch: pytest.MonkeyPatch, name: str) -> Iterator[Any]:
    """Yield a boto3 client whose new server has one bucket; the environment leads s3fs there."""
    import boto3
    import s3fs
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    client = boto3.client("s3")
    client.create_bucket(Bucket=name)
    # s3fs keeps a file system by its arguments, not by these variables: it would go on with the
    # server of another test, which is no longer there.
    s3fs.S3FileSystem.clear_instance_cache()
    try:
        yield client
    finally:
        s3fs.S3FileSystem.clear_instance_cache()
        server.stop()
