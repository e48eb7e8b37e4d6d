"""One service for all fault tests, with short leases so that the tests are fast."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from service.settings import Settings
from tests.faults.cluster import LEASE, Cluster, Server


@pytest.fixture(scope="package")
def running_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with ExitStack() as exits:
        server = Server(folder)
        exits.callback(server.kill)
        settings = Settings(
            redis_url=server.url,
            data_dir=folder,
            artifacts_dir=folder / "artifacts",
            priors=["embedded"],
            threads=1,
            lease_seconds=LEASE,
            heartbeat_seconds=0.3,
            sweep_seconds=0.2,
            republish_seconds=1,
            storage_seconds=4,
            stall_seconds=20,
        )
        yield Cluster(settings, server, folder / "worker.log", exits)


@pytest.fixture
def cluster(running_cluster: Cluster) -> Cluster:
    """The service with one idle worker."""
    running_cluster.ensure_worker()
    return running_cluster


@pytest.fixture(scope="package")
def undisturbed(running_cluster: Cluster) -> str:
    """The result of seed 0 without faults."""
    running_cluster.ensure_worker()
    return running_cluster.result(running_cluster.submit())
