"""A training run may be stopped at any step and goes on from there."""

import json
import os
import signal

import pytest
import torch
from torch import nn

from training import runs
from training.loop import steps_done, train
from training.muon import HiddenMuon
from training.schedule import Anneal, Constant, Cosine

FOREVER = Constant(1e9, warmup=1e-9)
"""At a rate that does not depend on how fast the machine is."""


class Regression:
    """A loss with something to do at a chosen step."""

    def __init__(self, model, at=None, action=None):
        self.model = model
        self.at = at
        self.action = action
        self.steps = 0
        self.shares = []

    def __call__(self, share):
        self.steps += 1
        self.shares.append(share)
        if self.steps == self.at:
            self.action()
        x = torch.linspace(-1, 1, 8)[:, None]
        loss = (self.model(x) - 3 * x).square().mean()
        return loss, {"loss": loss.item()}


def bias(model):
    return {"bias": model.bias.item()}


def run(out, schedule, at=None, action=None, export=None):
    torch.manual_seed(0)
    model = nn.Linear(1, 1)
    loss = Regression(model, at, action)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    train(model, loss, [optimizer], out, schedule, bias, export=export)
    return model, loss


@pytest.mark.parametrize("way", ["file", "signal"])
def test_a_stopped_run_continues_where_it_was(tmp_path, way):
    def stop():
        if way == "file":
            (tmp_path / "STOP").touch()
        else:
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    model, first = run(tmp_path, FOREVER, at=7, action=stop)
    assert first.steps == 7
    assert signal.getsignal(signal.SIGTERM) is before
    assert steps_done(tmp_path) == 7
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    assert torch.equal(state["model"]["weight"], model.weight)

    continued, second = run(tmp_path, FOREVER, at=3, action=stop)
    assert second.steps == 3
    assert steps_done(tmp_path) == 10
    straight, _ = run(tmp_path / "straight", FOREVER, 10, (tmp_path / "straight/STOP").touch)
    assert continued.weight.item() == pytest.approx(straight.weight.item(), abs=1e-3)


def test_averages_of_early_steps_stay(tmp_path):
    def export(model, folder):
        (folder / "bias.txt").write_text(str(model.bias.item()))

    stop = (tmp_path / "STOP").touch
    run(tmp_path, FOREVER, 150, stop, export)
    folders = sorted((tmp_path / "snapshots").iterdir(), key=lambda each: int(each.name))
    assert [each.name for each in folders] == ["64", "128"]
    early, late = (float((each / "bias.txt").read_text()) for each in folders)
    assert abs(late) < abs(early), "its goal is 0"


@pytest.mark.parametrize("shape", [(6, 10), (10, 6), (4, 2, 3, 3)])
def test_muon_is_that_of_torch(shape):
    """Which computes in bfloat16, and takes matrices only."""
    torch.manual_seed(0)
    ours = nn.Parameter(torch.randn(shape))
    theirs = nn.Parameter(ours.data.flatten(1).clone())
    optimizers = [
        HiddenMuon([ours], lr=0.1, weight_decay=0.1),
        torch.optim.Muon([theirs], lr=0.1, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
    ]
    start = ours.data.clone()
    for _ in range(3):
        ours.grad = torch.randn(shape)
        theirs.grad = ours.grad.flatten(1).clone()
        for optimizer in optimizers:
            optimizer.step()
    change = (ours.data - start).flatten(1)
    off = ours.data.flatten(1) - theirs.data
    assert off.norm() < 0.05 * change.norm()


def test_a_second_run_in_the_same_folder_is_refused(tmp_path):
    def intrude():
        with pytest.raises(SystemExit, match="Another run"):
            run(tmp_path, FOREVER)
        (tmp_path / "STOP").touch()

    run(tmp_path, FOREVER, at=2, action=intrude)
    assert steps_done(tmp_path) == 2


def test_a_finished_run_does_nothing(tmp_path):
    run(tmp_path, Cosine(0.001))
    steps = steps_done(tmp_path)
    _, again = run(tmp_path, Cosine(0.001))
    assert steps > 0
    assert again.steps == 0


def test_schedules():
    constant, anneal = Constant(end=1200, settle=100), Anneal(start=600, end=660)
    assert constant.rate(0) < 0.01
    assert constant.rate(30) == constant.rate(900)
    assert constant.share(50) == 0.5
    assert constant.share(1000) == 1
    assert anneal.rate(600) == pytest.approx(constant.rate(600))
    assert anneal.rate(0.5) == constant.rate(0.5)
    assert anneal.rate(660) < 0.01
    assert anneal.rate(610) > anneal.rate(650)
    assert Cosine(60).rate(60) < 0.01


def options(out, *more):
    return runs.parser("", 1200, 4, "").parse_args(["--corpus", "", "--out", str(out), *more])


def test_a_run_may_anneal_itself(tmp_path):
    """If there is none to copy; continued, it keeps its schedule."""
    out = tmp_path / "run"
    for _ in range(2):
        where, schedule = runs.folder_and_schedule(options(out, "--minutes", "3", "--anneal", "5"))
        assert (where, schedule) == (out, Anneal(3, 8))
        torch.save({"spent": 4.0}, out / "state.pt")


def test_a_constant_run_is_annealed_in_a_copy(tmp_path):
    out = tmp_path / "run"
    assert runs.folder_and_schedule(options(out)) == (out, Constant(1200))
    for spent in (4.0, 6.0):  # a later state is not taken
        torch.save({"spent": spent}, out / "state.pt")
        where, schedule = runs.folder_and_schedule(options(out, "--anneal", "5"))
        assert (where, schedule) == (tmp_path / "run-annealed", Anneal(4, 9))


def test_a_mistyped_run_is_not_started(tmp_path):
    with pytest.raises(SystemExit, match=r"No run in .*mistyped"):
        runs.folder_and_schedule(options(tmp_path / "mistyped", "--anneal", "5"))
    assert not list(tmp_path.iterdir())


def test_a_run_shorter_than_the_interval_of_its_log_has_curves(tmp_path):
    run(tmp_path, Constant(1e-9))
    (row,) = map(json.loads, (tmp_path / "log.jsonl").read_text().splitlines())
    assert row["step"] == 1
    assert "loss" in row
    assert (tmp_path / "curves.png").stat().st_size
