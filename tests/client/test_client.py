"""The client with the running service, over a network with simulated failures."""

from __future__ import annotations

import asyncio
import io
import time
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import aps_client
from aps_client import AsyncClient, Client, Connection, Retry
from aps_contract import JobState
from aps_core.errors import APSError
from tests.client.proxy import Proxy
from tests.stack import Stack, png

QUICK: dict[str, Any] = {"sigma": 0.1, "sampler": {"steps": 3, "inner_steps": 2}}
LONG: dict[str, Any] = {"sigma": 0.1, "sampler": {"steps": 128, "inner_steps": 40}}


def size(picture: bytes) -> tuple[int, int]:
    with Image.open(io.BytesIO(picture)) as opened:
        return opened.size


@pytest.fixture
def client(stack: Stack):
    with Client(stack.url) as client:
        yield client


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    path = tmp_path / "photo.png"
    path.write_bytes(png())
    return path


@pytest.fixture
def proxy(stack: Stack):
    with Proxy(int(stack.url.rpartition(":")[2])) as proxy:
        yield proxy


@pytest.fixture
def through(proxy: Proxy):
    """A client that connects through the proxy, with short retry delays."""
    with Client(
        Connection(server=proxy.url, timeout=20, retry=Retry(pause_seconds=0.05))
    ) as client:
        yield client


def test_one_line_restores_a_file(stack: Stack, photo: Path, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("APS_SERVER", stack.url)
    result = aps_client.restore(photo, "gaussian_blur", **QUICK)
    (path,) = result.save(tmp_path / "restored.png")
    assert size(path.read_bytes()) == (64, 64)
    assert result.sidecar["spec"]["operator"] == {"type": "gaussian_blur", "sigma": 3.0}
    assert result.job.state is JobState.SUCCEEDED
    assert set(result.files) == {"result.png", "result.json"}  # but not the input


@pytest.mark.parametrize("source", ["path", "bytes", "file"])
def test_a_picture_may_be_a_path_bytes_or_a_file(client: Client, photo: Path, source: str):
    picture: Any = {
        "path": str(photo),
        "bytes": photo.read_bytes(),
        "file": io.BytesIO(photo.read_bytes()),
    }[source]
    job = client.submit("restore", {"image": picture}, operator={"type": "denoise"}, **QUICK)
    assert job.image_size == (64, 64)
    assert client.wait(job.id, timeout=60).state is JobState.SUCCEEDED


def test_an_uploaded_picture_can_be_used_by_hash(client: Client, photo: Path):
    named = f"sha256:{client.keep(photo).sha256}"
    alone = client.submit("restore", {"image": named}, operator={"type": "denoise"}, **QUICK)
    assert alone.image_size == (64, 64)
    beside_a_file = client.submit(
        "restore", {"image": named, "mask": png(mode="L")}, operator={"type": "inpainting"}, **QUICK
    )
    assert beside_a_file.artifacts[0].sha256 == named.removeprefix("sha256:")


def test_a_batch_is_followed_to_its_results(client: Client, photo: Path):
    batch = client.batches.submit([photo, png(40, 30), png(30, 40)], "denoise", **QUICK)
    done = client.batches.wait(batch, timeout=120)
    assert done.counts == {"succeeded": 3}
    results = [client.result(picture.job or "").image for picture in done.pictures]
    assert [size(result) for result in results] == [(64, 64), (40, 30), (30, 40)]
    with zipfile.ZipFile(io.BytesIO(client.batches.archive(done.id))) as archive:
        assert archive.read("002-result.png") == results[1]
    client.batches.delete(done)
    with pytest.raises(aps_client.NotFound):
        client.batches.get(done.id)


def test_several_samples_and_their_spread(client: Client, photo: Path, tmp_path: Path):
    result = client.restore(photo, num_samples=2, **QUICK)
    names = {path.name for path in result.save(tmp_path / "out.png")}
    assert {
        "out.png",
        "out-sample-1.png",
        "out-sample-2.png",
        "out-mean.png",
        "out-spread.png",
    } <= names
    assert len(result.samples) == 2
    assert result.image in result.samples


def test_other_tasks_have_methods(client: Client, photo: Path):
    mask = io.BytesIO()
    drawn = Image.new("L", (64, 64), 255)
    drawn.paste(0, (16, 16, 48, 48))
    drawn.save(mask, "PNG")
    quick: dict[str, Any] = {"sampler": {"steps": 2, "inner_steps": 1}}
    assert size(client.edit(photo, "a flower", mask=mask.getvalue(), **quick).image) == (64, 64)
    assert size(client.stylize(photo, "a castle", width=48, height=32, **quick).image) == (48, 32)
    assert size(client.generate("a flower", width=32, height=32, sampler={"steps": 2}).image) == (
        32,
        32,
    )


def test_there_is_one_preview_per_step(client: Client, photo: Path):
    job = client.submit("restore", {"image": photo}, operator={"type": "denoise"}, **QUICK)
    previews = list(client.previews(job))
    assert [(one.step, one.total) for one in previews] == [(1, 3), (2, 3), (3, 3)]
    assert size(previews[-1].jpeg) == (64, 64)
    assert previews[-1].misfit is not None


def test_the_asynchronous_client_behaves_the_same(stack: Stack, photo: Path):
    async def both() -> tuple[list[int], list[str]]:
        async with AsyncClient(stack.url) as client:
            job = await client.submit(
                "restore", {"image": photo}, operator={"type": "denoise"}, **QUICK
            )
            steps = [preview.step async for preview in client.previews(job)]
            results = await asyncio.gather(
                *(client.restore(photo, seed=seed, **QUICK) for seed in (1, 2))
            )
            known = [job.id async for job in client.jobs(page_size=2)]
            assert {result.job.id for result in results} < set(known)
            with pytest.raises(aps_client.NotFound):
                await client.job("00000000-0000-0000-0000-000000000000")
            return steps, known

    steps, known = asyncio.run(both())
    assert steps == [1, 2, 3]
    assert len(known) == len(set(known)) >= 3


def test_both_clients_have_the_same_methods():
    def public(cls: type) -> set[str]:
        return {name for name in dir(cls) if not name.startswith("_")}

    assert public(Client) == public(AsyncClient)


def test_every_job_is_listed_once_over_pages(client: Client, photo: Path):
    made = [
        client.submit("restore", {"image": photo}, operator={"type": "denoise"}, **QUICK).id
        for _ in range(3)
    ]
    listed = [job.id for job in client.jobs(page_size=2)]
    assert listed[:3] == made[::-1]
    assert len(listed) == len(set(listed))


def test_errors_after_cancel_and_delete(client: Client, photo: Path):
    job = client.submit("restore", {"image": photo}, operator={"type": "denoise"}, **LONG)
    next(event for event in client.events(job) if event.type == "progress")
    with pytest.raises(aps_client.Conflict) as running:
        client.delete(job)
    assert running.value.code == "job_running"
    with pytest.raises(aps_client.WaitTimeout) as expired:
        client.wait(job, timeout=0.2)
    assert expired.value.job.id == job.id
    client.cancel(job)
    with pytest.raises(aps_client.JobCanceled) as canceled:
        client.result(job, timeout=60)
    assert canceled.value.code == "canceled"
    client.delete(job)
    with pytest.raises(aps_client.NotFound) as gone:
        client.job(job)
    assert gone.value.request_id


def test_errors_carry_the_services_code_and_fields(client: Client, photo: Path):
    with pytest.raises(aps_client.InvalidRequest) as wrong:
        client.restore(photo, {"type": "super_resolution", "factor": 3})
    assert wrong.value.code == "invalid_spec"
    assert wrong.value.problem.errors[0].pointer == "/operator/factor"
    assert "2, 4 or 8" in str(wrong.value)
    with pytest.raises(aps_client.InvalidRequest) as text:
        client.restore(b"hello")
    assert (text.value.code, text.value.retryable) == ("not_an_image", False)
    assert isinstance(text.value, APSError)


def test_unreachable_is_raised_after_the_last_attempt():
    with (
        Client(
            Connection(server="http://127.0.0.1:9", retry=Retry(attempts=2, pause_seconds=0.01))
        ) as client,
        pytest.raises(aps_client.Unreachable, match="Is the service running"),
    ):
        client.capabilities()


def test_an_unknown_task_is_not_found(stack: Stack):
    with Client(stack.url) as client, pytest.raises(aps_client.NotFound, match="nothing at"):
        client.submit("nonesuch")


def test_a_lost_response_does_not_create_a_second_job(
    through: Client, client: Client, proxy: Proxy, photo: Path
):
    before = {job.id for job in client.jobs()}
    proxy.refuse = 1
    proxy.cut_answers = 1
    job = through.submit("restore", {"image": photo}, operator={"type": "denoise"}, **QUICK)
    assert proxy.connections == 3  # refused, cut after the job was created, answered
    assert {one.id for one in client.jobs()} - before == {job.id}
    assert client.wait(job, timeout=60).state is JobState.SUCCEEDED


def test_an_idempotency_key_works_across_clients(client: Client, stack: Stack, photo: Path):
    spec: dict[str, Any] = {
        "operator": {"type": "denoise"},
        "idempotency_key": 'order "7"',
        **QUICK,
    }
    first = client.submit("restore", {"image": photo}, **spec)
    with Client(stack.url) as another:
        assert another.submit("restore", {"image": photo}, **spec).id == first.id
        with pytest.raises(aps_client.InvalidRequest) as other:
            another.submit("restore", {"image": photo}, **{**spec, "seed": 1})
    assert other.value.code == "idempotency_key_reused"


def test_events_resume_after_a_broken_connection(through: Client, proxy: Proxy, photo: Path):
    spec: dict[str, Any] = {"sigma": 0.1, "sampler": {"steps": 8, "inner_steps": 4}}
    job = through.submit("restore", {"image": photo}, operator={"type": "denoise"}, **spec)
    seen = []
    for event in through.events(job):
        seen.append(event)
        if event.type == "progress" and event.data["step"] == 2:
            before = proxy.connections
            proxy.refuse = 1
            proxy.cut()
    assert proxy.connections >= before + 2
    assert [event.data["step"] for event in seen if event.type == "progress"] == list(range(1, 9))
    assert len({event.id for event in seen}) == len(seen)
    assert seen[-1].job is not None
    assert seen[-1].job.state is JobState.SUCCEEDED


def outlasting(seconds: float) -> Retry:
    return Retry(attempts=2, pause_seconds=0.05, outage_seconds=seconds)


@pytest.mark.parametrize("way", ["events", "previews", "wait"])
def test_following_survives_an_outage_longer_than_the_attempts(proxy: Proxy, photo: Path, way: str):
    spec: dict[str, Any] = {"sigma": 0.1, "sampler": {"steps": 8, "inner_steps": 4}}
    with Client(Connection(server=proxy.url, retry=outlasting(60))) as through:
        job = through.submit("restore", {"image": photo}, operator={"type": "denoise"}, **spec)
        proxy.refuse = 5
        proxy.cut()
        if way == "events":
            *_, last = through.events(job)
            assert last.type == "done"
        elif way == "previews":
            assert [one.step for one in through.previews(job)] == list(range(1, 9))
        else:
            assert through.wait(job, timeout=60).state is JobState.SUCCEEDED
    assert proxy.refuse == 0


def test_following_ends_after_the_outage_or_the_timeout(proxy: Proxy, photo: Path):
    with Client(Connection(server=proxy.url, retry=outlasting(3))) as through:
        job = through.submit("restore", {"image": photo}, operator={"type": "denoise"}, **LONG)
        proxy.refuse = 1000
        proxy.cut()
        started = time.monotonic()
        with pytest.raises(aps_client.Unreachable, match="in a row"):
            list(through.events(job))
        with pytest.raises(aps_client.Unreachable):
            through.wait(job)
        assert 2 < time.monotonic() - started < 20
        started = time.monotonic()
        with pytest.raises(aps_client.Unreachable):
            through.wait(job, timeout=0.2)
        assert time.monotonic() - started < 1
        proxy.refuse = 0
        through.cancel(job)


def test_a_damaged_download_is_detected(client: Client, photo: Path):
    job = client.restore(photo, **QUICK).job
    lied = [one.model_copy(update={"sha256": "0" * 64}) for one in job.artifacts]
    with pytest.raises(aps_client.Corrupt):
        client.download(job.model_copy(update={"artifacts": lied}), "result.png")


def test_the_api_key_is_sent_but_not_in_the_repr(monkeypatch):
    monkeypatch.setenv("APS_API_KEY", "aps_secret")
    connection = Connection()
    assert connection.options()["headers"]["Authorization"] == "Bearer aps_secret"
    assert "secret" not in repr(replace(connection))


def test_an_address_and_a_key_may_come_from_a_file_with_a_line_break():
    connection = Connection("http://127.0.0.1:8000\n", " aps_secret\n")
    assert connection == Connection("http://127.0.0.1:8000", "aps_secret")
    assert Connection(api_key="\n").api_key is None


@pytest.mark.parametrize("key", ["aps_sécret", "aps\nsecret", "aps secret"])
def test_a_key_that_cannot_be_sent_is_refused_without_being_printed(key: str):
    with pytest.raises(aps_client.InvalidArgument, match="The API key") as refused:
        Client("http://127.0.0.1:9", api_key=key)
    assert "cret" not in str(refused.value)


@pytest.mark.parametrize("server", ["nonsense", "http://", "http://a\nb"])
def test_an_address_that_is_none_is_an_error_of_the_client(server: str):
    with pytest.raises(aps_client.ClientError, match="must be a URL"):
        Client(server)


def test_something_that_is_no_picture_is_refused_with_a_hint(stack: Stack):
    wrong: list[Any] = [Image.open(io.BytesIO(png())), io.StringIO("text"), None]
    with Client(stack.url) as client:
        for given in wrong:
            with pytest.raises(aps_client.InvalidArgument, match=r"must be a path.* Pillow"):
                client.keep(given)


def test_a_result_without_a_picture_says_what_it_has(client: Client, photo: Path):
    result = client.restore(photo, **QUICK)
    text = replace(result, files={"answer.txt": b"", "result.json": b"{}"})
    with pytest.raises(KeyError, match=r"has no file 'result.png'; it has: answer.txt"):
        _ = text.image
    with pytest.raises(KeyError, match=r"has no file 'answer.txt'; it has: result"):
        _ = result.text


def test_an_id_is_one_segment_of_the_address(client: Client):
    for made_up in ("../../capabilities", "..", "a/events", "a?b"):
        with pytest.raises(aps_client.NotFound):
            client.job(made_up)
        with pytest.raises(aps_client.NotFound):
            client.batches.get(made_up)
