"""Dumps in buckets and at URLs, with servers on this machine and no network."""

import json
import shutil
import threading
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from buckets import lenient, needs, needs_s3, s3_bucket
from ingesting import ingest_into, rows
from places import DEMO

from bufdb.dumps import remote
from bufdb.dumps.discover import base_of, discover
from bufdb.dumps.remote import Url, is_url, listed
from bufdb.errors import UsageError

RUN = DEMO / "cpu_b8"
INIT = "module_0000.jit_init.cpu_after_optimizations"
LIVE = f"{INIT}-live-range.txt"


@pytest.fixture
def bucket(monkeypatch):
    """A client for a server whose bucket has a dump directory."""
    with s3_bucket(monkeypatch, "dumps") as client:
        for path in RUN.iterdir():
            client.put_object(Bucket="dumps", Key=f"job/run1/{path.name}", Body=path.read_bytes())
        yield client


@needs_s3
@lenient
def test_a_folder_of_a_bucket_is_a_run(bucket, fresh):
    con, plain = fresh(), fresh()
    summary = ingest_into(con, Url("s3://dumps/job/run1"))
    assert summary.module_count == 3
    ingest_into(plain, RUN, "run1")
    for table in ("modules", "values", "peak_values"):
        assert rows(con, f"FROM {table} ORDER BY ALL") == rows(plain, f"FROM {table} ORDER BY ALL")
    assert rows(con, "SELECT source_path, dumped_at IS NULL FROM runs") == [
        ("s3://dumps/job/run1", False)
    ]


@needs_s3
@lenient
def test_only_changed_objects_are_read_again(bucket, fresh, monkeypatch):
    con, url = fresh(), Url("s3://dumps/job/run1")
    ingest_into(con, url)
    with monkeypatch.context() as patch:
        patch.setattr("bufdb.ingest.group.load", None)
        assert ingest_into(con, url).unchanged_count == 3
    text = (RUN / LIVE).read_bytes().replace(b"(peak)", b"(peak) ")
    bucket.put_object(Bucket="dumps", Key=f"job/run1/{LIVE}", Body=text)
    summary = ingest_into(con, url)
    assert (summary.replaced_count, summary.unchanged_count) == (1, 2)


@needs_s3
@lenient
def test_an_archive_in_a_bucket_is_read_where_it_lies(bucket, fresh, tmp_path):
    path = shutil.make_archive(str(tmp_path / "all"), "gztar", DEMO, "cpu_b8")
    bucket.upload_file(path, "dumps", "other/all.tar.gz")
    con, url = fresh(), Url("s3://dumps/other/all.tar.gz")
    assert ingest_into(con, url).module_count == 3
    assert ingest_into(con, url).unchanged_count == 3
    assert rows(con, "SELECT DISTINCT run_name FROM modules") == [("all",)]


@needs_s3
@lenient
def test_what_is_not_there_or_not_allowed_is_one_line(bucket):
    for text in ("s3://dumps/nothing/here", "s3://no-such-bucket/x"):
        with pytest.raises(UsageError) as error:
            listed(Url(text))
        assert text in str(error.value)
        assert "\n" not in str(error.value)


class Storage(BaseHTTPRequestHandler):
    """The part of Google Cloud Storage's JSON API that bufdb uses: lists, one object, its bytes."""

    objects: ClassVar[dict[str, bytes]] = {}
    requested: ClassVar[list[str]] = []

    def do_GET(self):
        url = urlsplit(self.path)
        params = dict(parse_qsl(url.query))
        place, _, name = url.path.partition("/b/dumps/o")
        data = self.objects.get(unquote(name).removeprefix("/"))
        if not name and place == "/storage/v1":
            names = [name for name in self.objects if name.startswith(params.get("prefix", ""))]
            self.answer(json.dumps({"items": list(map(self.about, names))}).encode())
        elif data is None:
            self.answer(b'{"error": {"code": 404, "message": "Not Found"}}', 404)
        elif params.get("alt") == "media" or place == "/download/storage/v1":
            self.requested.append(unquote(name).removeprefix("/"))
            start, stop = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
            self.answer(data[start : stop + 1], 206)
        else:
            self.answer(json.dumps(self.about(unquote(name).removeprefix("/"))).encode())

    def about(self, name):
        data = self.objects[name]
        return {
            "bucket": "dumps",
            "etag": str(hash(data)),
            "generation": "1",
            "kind": "storage#object",
            "name": name,
            "size": str(len(data)),
            "updated": "2026-01-01T00:00:00.000Z",
        }

    def answer(self, body, code=200):
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@needs("gcsfs")
@lenient
def test_of_a_folder_of_google_only_changed_files_are_read(fresh, monkeypatch):
    from fsspec.config import conf

    Storage.objects |= {f"job/run1/{path.name}": path.read_bytes() for path in RUN.iterdir()}
    with serving(Storage) as address:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", address)
        # Or it asks by gRPC first which kind of bucket it is.
        monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
        monkeypatch.setitem(conf, "gs", {"token": "anon"})
        con, plain, url = fresh(), fresh(), Url("gs://dumps/job/run1")
        assert ingest_into(con, url).module_count == 3
        ingest_into(plain, RUN, "run1")
        for table in ("modules", "values", "peak_values"):
            question = f"FROM {table} ORDER BY ALL"
            assert rows(con, question) == rows(plain, question)
        Storage.requested.clear()
        assert ingest_into(con, url).unchanged_count == 3
        assert Storage.requested == []
        Storage.objects[f"job/run1/{LIVE}"] += b"\n"
        assert ingest_into(con, url).replaced_count == 1
        assert f"job/run1/{LIVE}" in Storage.requested
        with pytest.raises(UsageError, match="gs://dumps/nothing"):
            listed(Url("gs://dumps/nothing"))


@contextmanager
def serving(handler):
    """The address at which a handler answers on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@needs("fsspec", "aiohttp")
@lenient
def test_a_file_over_http(fresh):
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    handler = partial(Quiet, directory=str(DEMO / "cpu_b8_old"))
    with serving(handler) as address:
        con = fresh()
        name = "module_0000.jit_init.cpu_after_optimizations-buffer-assignment.txt"
        ingest_into(con, Url(f"{address}/{name}"), "run")
        assert rows(con, "SELECT module_name, has_live_ranges FROM modules") == [("jit_init", True)]


@needs("fsspec", "aiohttp")
@lenient
def test_an_archive_over_http_is_requested_once(tmp_path):
    methods = []

    class Counting(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            methods.append(self.command)

    path = shutil.make_archive(str(tmp_path / "all"), "gztar", DEMO, "cpu_b8")
    with serving(partial(Counting, directory=str(tmp_path))) as address:
        modules = discover(Url(f"{address}/{Path(path).name}"))
        files = [file for module in modules for file in module.files.values()]
        assert len(files) > 12
        for file in files:
            assert file.path.open().read() == (DEMO / file.name.partition(":")[2]).read_bytes()
    assert methods.count("GET") <= 2  # the other one reports its size


class Hostile(BaseHTTPRequestHandler):
    """Serve endless bodies, bodies longer than announced, and a page of links with a bad one."""

    def do_HEAD(self):
        self.answer(is_body=False)

    def do_GET(self):
        self.answer(is_body=True)

    def answer(self, *, is_body):
        name = self.path.rpartition("/")[2]
        if name == "gone.txt":
            self.send_error(500)
            return
        data = DUMP.read_bytes()
        if not name:
            data = b"".join(b'<a href="%s">x</a>' % link for link in (DUMP_NAME, b"gone.txt"))
        self.send_response(200)
        if name == "long.txt" and not is_body:
            self.send_header("Content-Length", "1000")
        elif name not in ("long.txt", "endless.txt"):
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        while is_body:
            try:
                self.wfile.write(data)
            except OSError:
                return
            is_body = name == "endless.txt"

    def log_message(self, *_):
        pass


DUMP = DEMO / "cpu_b8_old" / "module_0000.jit_init.cpu_after_optimizations-buffer-assignment.txt"
DUMP_NAME = DUMP.name.encode()


@needs("fsspec", "aiohttp")
@lenient
def test_endless_bodies_are_cut_off(fresh, monkeypatch):
    monkeypatch.setattr(remote, "_MOST_UNTOLD", 1 << 20)
    with serving(Hostile) as address:
        with pytest.raises(UsageError, match="sends more than 1 MiB and no length"):
            listed(Url(f"{address}/endless.txt"))
        (longer,) = listed(Url(f"{address}/long.txt")).values()
        with pytest.raises(OSError, match="sends more than it announced"):
            longer.open().read()
        con = fresh()
        assert ingest_into(con, Url(f"{address}/dumps/"), "run").module_count == 1
        files = listed(Url(f"{address}/dumps/"))
        assert sorted(files) == ["gone.txt", DUMP.name]
        assert files[DUMP.name].open().read() == DUMP.read_bytes()
        with pytest.raises(OSError, match="its server does not return it"):
            files["gone.txt"].open().read()
        monkeypatch.setattr(remote, "_MOST_PAGE", 100)
        with pytest.raises(UsageError, match="its page has more than"):
            listed(Url(f"{address}/dumps/"))


def test_without_fsspec_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "fsspec", None)
    with pytest.raises(UsageError, match=r"pip install 'bufdb\[remote\]'"):
        listed(Url("gs://bucket/dumps"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("gs://a/b", True), ("https://a", True), ("a/b", False), ("C:\\a", False), ("a:b", False)],
)
def test_urls_are_distinguished_from_paths(text, expected):
    assert is_url(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gs://a/job/run1/", "run1"),
        ("s3://a/all.tar.gz", "all"),
        ("https://host/run1/x-buffer-assignment.txt", "run1"),
    ],
)
def test_a_url_gives_its_last_part_to_the_run(text, expected):
    assert base_of(Url(text)).name == expected
