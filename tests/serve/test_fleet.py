"""The simulation of fleets: nothing is lost, and what it tells is what its parts say."""

from __future__ import annotations

import math

import pytest

from benchmarks.fleet import ROUTERS, Fleet, Replica, Told, capacity, simulated
from benchmarks.fleet_load import Asked, Costs, Load, Size, asked
from heed.serve.pool import Prices

COSTS = Costs(50e-6, (0.5e-3, 0.8e-3, 0.9e-3, 1.4e-3, 1.5e-3, 2.1e-3, 2.6e-3, 3e-3))
SIZE = Size(Prices(16, 70_000, 70_000, 0), memory=1 << 26, rows=16)


def loaded(replicas: int, use: float = 0.8, requests: int = 60) -> Load:
    rate = use * replicas * capacity(Load(1.0, 1), SIZE, COSTS)
    return Load(rate, requests * replicas, groups=12)


@pytest.mark.parametrize("router", ROUTERS)
def test_every_request_is_answered(router: str) -> None:
    fleet = Fleet([Replica(number, SIZE, COSTS) for number in range(3)], ROUTERS[router]())
    fleet.run(asked(loaded(3)))
    assert sorted(one.number for one in fleet.answered) == list(range(180))
    assert all(one.arrived < one.first <= one.ended for one in fleet.answered)
    for replica in fleet.replicas:
        assert not replica.held
        assert len(replica.pool) == len(replica.known)  # only what is remembered is held


def test_one_request_takes_what_its_work_takes() -> None:
    """Read in chunks, then a token in each tick."""
    alone = Asked(0, 1.0, 0, 400, 384, 50)
    fleet = Fleet([Replica(0, SIZE, COSTS)], ROUTERS["round robin"]())
    fleet.run([alone, Asked(1, 100.0, 0, 400, 384, 1)])
    assert alone.first - alone.arrived == pytest.approx(400 * COSTS.read)
    assert alone.ended - alone.first == pytest.approx(49 * COSTS.step[0])
    second = fleet.answered[1]
    assert second.cached == 384  # of the same group
    assert second.first - second.arrived == pytest.approx(16 * COSTS.read)


def test_affinity_finds_more_prefixes() -> None:
    told = {router: simulated(loaded(8, 0.5), 8, SIZE, COSTS, router) for router in ROUTERS}
    assert told["prefix affinity"].cached > told["round robin"].cached
    assert told["prefix affinity"].answered == 480


def test_failures_lose_no_request() -> None:
    fleet = Fleet([Replica(number, SIZE, COSTS) for number in range(4)], ROUTERS["prefix affinity"](), 5.0, repair=1.0)
    fleet.run(asked(loaded(4, 0.4)))
    assert fleet.failed > 2
    assert len(fleet.answered) == 240
    assert max(one.tries for one in fleet.answered) > 1
    told = Told.of(fleet)
    assert 0 < told.p50 <= told.p99 < math.inf
    assert (told.answered, told.refused) == (240, 0)


def test_more_load_waits_longer() -> None:
    few, many = (simulated(loaded(2, use, 200), 2, SIZE, COSTS, "round robin") for use in (0.3, 3.0))
    assert few.p99 < many.p50
    assert few.goodput > 0
