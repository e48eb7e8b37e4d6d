"""``aps weights`` in a separate process, with a local server that implements the hub's HTTP API."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save

ROOT = Path(__file__).parents[1]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {
    "config.json": b'{"_class_name": "MAGVITv2"}',
    "pytorch_model.safetensors": save(
        {"encoder.weight": torch.arange(6_000_000, dtype=torch.float32)}
    ),
    "pytorch_model.bin": b"\x80\x04 a pickle",
    "modeling_magvitv2.py": b"raise SystemExit",
}


@dataclass
class Hub:
    """Files of the simulated hub, and the requests it received."""

    repo: str = "showlab/magvitv2"
    files: dict[str, bytes] = field(default_factory=lambda: dict(FILES))
    break_after: int | None = None
    """Bytes of a response after which the connection is closed, once."""
    asked: list[tuple[str, str, str | None]] = field(default_factory=list)
    url: str = ""

    def bodies(self, name: str) -> list[str | None]:
        """Requested ranges of a file."""
        return [
            span
            for method, path, span in self.asked
            if method == "GET" and path.endswith("/" + name)
        ]


def handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def answer(self, body: bool) -> None:
            path = self.path.partition("?")[0]
            hub.asked.append((self.command, path, self.headers.get("Range")))
            if path.startswith(f"/api/models/{hub.repo}/revision/"):
                data = json.dumps(
                    {
                        "id": hub.repo,
                        "sha": COMMIT,
                        "siblings": [{"rfilename": name} for name in hub.files],
                    }
                ).encode()
                self.reply(200, data, {"Content-Type": "application/json"}, body)
            elif path.startswith(f"/api/models/{hub.repo}/tree/"):
                tree = [
                    {
                        "type": "file",
                        "path": name,
                        "size": len(data),
                        "oid": hashlib.sha1(data).hexdigest(),
                    }
                    for name, data in hub.files.items()
                ]
                self.reply(
                    200, json.dumps(tree).encode(), {"Content-Type": "application/json"}, body
                )
            elif (
                path.startswith(f"/{hub.repo}/resolve/")
                and (name := path.rpartition("/")[2]) in hub.files
            ):
                self.file(hub.files[name], body)
            else:
                self.reply(
                    404,
                    b"{}",
                    {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"},
                    body,
                )

        def file(self, data: bytes, body: bool) -> None:
            headers = {
                "ETag": f'"{hashlib.sha256(data).hexdigest()}"',
                "X-Repo-Commit": COMMIT,
                "Accept-Ranges": "bytes",
            }
            span = self.headers.get("Range")
            if span is None:
                self.reply(200, data, headers, body)
                return
            first = int(span.removeprefix("bytes=").partition("-")[0])
            self.reply(
                206,
                data[first:],
                {**headers, "Content-Range": f"bytes {first}-{len(data) - 1}/{len(data)}"},
                body,
            )

        def reply(self, status: int, data: bytes, headers: dict[str, str], body: bool) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            if not body:
                return
            if hub.break_after is not None and len(data) > hub.break_after:
                data, hub.break_after = data[: hub.break_after], None
                self.close_connection = True
            self.wfile.write(data)

    return Handler


@pytest.fixture
def hub() -> Iterator[Hub]:
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(hub))
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield hub
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def aps(hub: Hub, tmp_path: Path):
    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("HF_", "APS_"))
        }
        ours = {
            "HF_ENDPOINT": hub.url,
            "APS_WEIGHTS_DIR": str(tmp_path / "weights"),
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HOME": str(tmp_path / "hf"),
        }
        command = [sys.executable, "-m", "aps_cli.main", "weights", *arguments]
        return subprocess.run(
            command,
            cwd=ROOT,
            env={**clean, **ours, **environment},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


def test_fetch_downloads_no_pickles_or_code(hub: Hub, aps, tmp_path: Path) -> None:
    done = aps("fetch", "magvitv2")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "weights" / "magvitv2"
    assert done.stdout.strip() == str(folder)
    assert {path.name for path in folder.iterdir() if path.is_file()} == {
        "config.json",
        "pytorch_model.safetensors",
    }
    assert (folder / "pytorch_model.safetensors").read_bytes() == FILES["pytorch_model.safetensors"]
    assert not hub.bodies("pytorch_model.bin")
    asked = len(hub.asked)
    assert aps("fetch", "magvitv2").returncode == 0
    assert len(hub.asked) == asked, "what is here is not asked for again"
    assert aps("check").stdout == "magvitv2: present\n"


def test_a_cut_connection_is_resumed_where_it_broke(hub: Hub, aps, tmp_path: Path) -> None:
    hub.break_after = 15_000_000  # the client writes chunks of 10 MiB
    done = aps("fetch", "magvitv2")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "weights" / "magvitv2" / "pytorch_model.safetensors").read_bytes() == FILES[
        "pytorch_model.safetensors"
    ]
    first, second = hub.bodies("pytorch_model.safetensors")
    assert first is None
    assert second is not None
    assert 0 < int(second.removeprefix("bytes=").rstrip("-")) <= 15_000_000


def test_offline_never_asks(hub: Hub, aps) -> None:
    for done in (
        aps("fetch", "magvitv2", "--offline"),
        aps("fetch", "magvitv2", HF_HUB_OFFLINE="1"),
    ):
        assert done.returncode == 2
        assert done.stderr.startswith("aps: Offline: 'magvitv2' is missing in ")
        assert len(done.stderr.splitlines()) == 1
    assert not hub.asked


def test_an_unknown_repository_is_one_line(hub: Hub, aps) -> None:
    hub.repo = "somebody/else"
    done = aps("fetch", "magvitv2")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        "aps: 'magvitv2' could not be downloaded from showlab/magvitv2: "
    )
    assert "Traceback" not in done.stderr


def test_a_damaged_download_is_reported(hub: Hub, aps, tmp_path: Path) -> None:
    assert aps("fetch", "magvitv2").returncode == 0
    file = tmp_path / "weights" / "magvitv2" / "pytorch_model.safetensors"
    os.truncate(file, file.stat().st_size - 10)
    done = aps("check", "magvitv2", "--json")
    assert done.returncode == 1
    (found,) = json.loads(done.stdout)
    assert found["state"] == "damaged"
    assert "pytorch_model.safetensors has 24000" in found["reasons"][0]


def test_a_pickled_release_is_explained(hub: Hub, aps) -> None:
    done = aps("fetch", "kernelwizard")
    assert done.returncode == 2
    assert "GOPRO_wVAE.pth" in done.stderr
    assert "aps weights convert kernelwizard pickles/GOPRO_wVAE.pth" in done.stderr
    assert not hub.asked


class Code:
    """Runs a command when it is unpickled, if the reader allows it."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("sprung",)


def test_a_pickle_becomes_safetensors_and_its_code_never_runs(aps, tmp_path: Path) -> None:
    tensors = {"a": torch.arange(6.0).reshape(2, 3).T, "b": torch.ones(2)}
    torch.save(tensors, tmp_path / "pytorch_model.bin")
    file = str(tmp_path / "pytorch_model.bin")
    done = aps("convert", "vq-diffusion-ithq", file, "--part", "text_encoder")
    target = tmp_path / "weights" / "vq-diffusion-ithq" / "text_encoder" / "model.safetensors"
    assert (done.returncode, done.stdout.strip()) == (0, str(target)), done.stderr
    stored = load_file(target)
    assert {name: t.tolist() for name, t in stored.items()} == {
        name: t.tolist() for name, t in tensors.items()
    }
    assert aps("convert", "vq-diffusion-ithq", file, "--part", "nose").returncode == 2
    torch.save({"a": Code()}, tmp_path / "evil.pth")
    done = aps("convert", "lpips-vgg", str(tmp_path / "evil.pth"))
    assert done.returncode == 2
    assert "does not hold tensors by name" in done.stderr
    assert not Path("sprung").exists()


def test_list_and_path(hub: Hub, aps, tmp_path: Path) -> None:
    listed = {entry["name"]: entry for entry in json.loads(aps("list", "--json").stdout)}
    assert listed["qwen3-0.6b"]["sha256"]["model.safetensors"].startswith("f47f7117")
    assert {entry["state"] for entry in listed.values()} == {"missing"}
    assert aps("path", "mmada-8b-base").stdout.strip() == str(
        tmp_path / "weights" / "mmada-8b-base"
    )
    assert "There is no checkpoint 'mmada'" in aps("path", "mmada").stderr
    assert "mmada-8b-base" in aps("list").stdout
    assert not hub.asked
