"""A model that is spread over processes trains like one that is not, and goes on in any number of them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from heed.core.errors import ConfigError, RunError
from heed.mixers import Cross
from heed.models import Decoder, Encoder, Seq2seq
from heed.models.variants.elmo import ElmoEncoder
from heed.models.variants.rmt import RMT
from heed.parts.layers.norms import BatchNorm
from heed.runs import Run, digests, load
from heed.runs.training import Replicate, Shard, Training
from heed.train import checkpoint
from heed.train.parallel import Group
from heed.train.shards import LAYOUT, Shards
from heed.train.spread import Replicated, Sharded, spread, units
from tests.train.support import launched, metrics, recipe, resumed, trained
from tests.train.test_damage import heard

CPU = torch.device("cpu")
EXACT = 1e-11  # float64: sums over rows in another order differ in the 16th digit, which six steps of Adam spread
EMA = ("training.average.kind=ema", "training.average.decay=0.9")
# Without decay over the steps, so that three steps are the first half of six.
PLAIN = ("model.dropout=0.0", "training.schedule.kind=constant", "training.save=3", "training.evaluate=3", *EMA)
SHARD = "training.parallel.kind=shard"

TRAIN = """
import torch
from tests.train.support import trained
from tests.train.test_shard import PLAIN, SHARD
torch.set_default_dtype(torch.float64)
trained(Path(sys.argv[1]) / "two", *PLAIN, SHARD, "training.accumulate=2")
"""
RESUME = """
import torch
from tests.train.support import resumed
torch.set_default_dtype(torch.float64)
for path in sys.argv[1:]:
    resumed(Path(path))
"""
THERE = f"""
import torch
torch.distributed.init_process_group("gloo")  # as a cluster's own launcher may do
{RESUME}
torch.distributed.destroy_process_group()
"""


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of one process and of two, the same but for that."""
    folder = tmp_path_factory.mktemp("made")
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        trained(folder / "one", *PLAIN)
        launched(folder, TRAIN, folder)
    finally:
        torch.set_default_dtype(before)  # a module's fixture is made before those that set it back
    return folder


def halfway(run: Path, out: Path, *changes: str) -> Path:
    """The run as it was after three of its steps, to go on with these settings."""
    shutil.copytree(run, out)
    shutil.rmtree(out / "state" / "00000006")
    (out / "model.safetensors").unlink()  # it was of the end
    if changes:
        Run(out).configure(recipe(*PLAIN, *changes))
    return out


def alike(one: Path, other: Path) -> None:
    """The same losses, the same weights to use, the same optimizer, within the bound."""
    for what in ("loss", "valid_loss"):
        found = [metrics(run, what) for run in (one, other)]
        assert [step for step, _ in found[0]] == [step for step, _ in found[1]]
        assert [loss for _, loss in found[0]] == pytest.approx([loss for _, loss in found[1]], rel=1e-5)  # six digits
    same(load_file(one / "model.safetensors"), load_file(other / "model.safetensors"))
    ends = [checkpoint._load(run / "state" / "00000006") for run in (one, other)]
    assert ends[0].progress.best == pytest.approx(ends[1].progress.best, rel=EXACT)
    for part in checkpoint.SPREAD:
        same(*(dict(end.tensors[part]) for end in ends))


def same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert tensor.shape == other[name].shape, name
        assert tensor.dtype == other[name].dtype, name
        assert torch.allclose(tensor.double(), other[name].double(), rtol=EXACT, atol=EXACT), name


def test_two_processes_that_share_a_model_train_like_one(made: Path) -> None:
    """Accumulated, clipped, averaged, evaluated and kept; what is kept is a file like any other."""
    alike(made / "one", made / "two")
    place = made / "two" / "state" / "00000006"
    assert sorted(path.name for path in place.iterdir()) == sorted(
        ["SHA256SUMS", LAYOUT, "progress.json", "rng.safetensors", "shard-00000.safetensors", "shard-00001.safetensors"]
    )
    whole = sum(
        tensor.nbytes for part in checkpoint.SPREAD for tensor in checkpoint._load(place).tensors[part].values()
    )
    parts = [load_file(place / f"shard-0000{rank}.safetensors").values() for rank in range(2)]
    held = [sum(tensor.nbytes for tensor in part) for part in parts]
    assert sum(held) == whole
    assert max(held) < 0.52 * whole  # rows that do not halve go to the first
    assert not Run(made / "two").damage()
    assert load(made / "two").translate(["x"]) == load(made / "one").translate(["x"])


def test_one_process_goes_on_from_two(made: Path, tmp_path: Path) -> None:
    told = heard(halfway(made / "two", tmp_path / "run"))
    assert "was written by 2 processes, now there is 1: the last bits of sums differ" in told
    alike(made / "one", tmp_path / "run")


def test_two_and_three_processes_go_on_from_two_and_one(made: Path, tmp_path: Path) -> None:
    """As many as before give the same bits; others the same up to rounding."""
    again, more = halfway(made / "two", tmp_path / "again"), halfway(made / "one", tmp_path / "more", SHARD)
    launched(tmp_path, RESUME, again, more)
    names = ("model.safetensors", "state/00000006/shard-00000.safetensors", "state/00000006/shard-00001.safetensors")
    assert all((made / "two" / name).read_bytes() == (again / name).read_bytes() for name in names)
    alike(made / "one", more)
    three = halfway(made / "two", tmp_path / "three")
    launched(tmp_path, THERE, three, processes=3)
    assert (three / "state" / "00000006" / "shard-00002.safetensors").exists()
    alike(made / "one", three)


# Every model: the loss and the gradients of rows of two lengths, one in each of two processes, beside both in one.
MODELS = """
import torch
from torch import distributed
from heed.models import ARCHITECTURES, MODELS
from heed.text import Byte
from heed.train.loop import Objective
from heed.train.parallel import group
from heed.train.spread import Sharded, units
from heed.train.storage import gathered
from tests.tasks.test_fitting import TEXTS, built, fitting, plan_of
torch.set_default_dtype(torch.float64)
with group("cpu") as processes:
    for kind in sys.argv[1:]:
        plan = plan_of(kind)
        task = fitting(plan)[0]
        known = task.equip(Byte().train(["x"]))
        items = task.corpus(TEXTS, known).once()
        items = [items[0], items[-1]]
        plain, model = (built(task, plan, known.size).double().train(False) for _ in range(2))
        batches = [task.batch([item]) for item in items]
        losses = [Objective(task, plain, compiled=False)(batch) for batch in batches]
        sum(total if beside is None else total + beside for total, _, beside in losses).backward()
        objective = Objective(task, model, compiled=False)
        count = len(units(model))
        wrapped = Sharded(processes).wrap(objective)
        total, nats, beside = wrapped(batches[processes.rank])
        (2 * (total if beside is None else total + beside)).backward()  # a mean over two processes
        told = processes.sum(float(nats))[0]
        assert abs(told - sum(float(nats) for _, nats, _ in losses)) <= 1e-10 * abs(told), kind
        for (name, weight), (_, mine) in zip(plain.named_parameters(), model.named_parameters(), strict=True):
            found = torch.zeros_like(weight) if mine.grad is None else gathered(mine.grad)
            wanted = torch.zeros_like(weight) if weight.grad is None else weight.grad
            assert torch.allclose(found, wanted, rtol=1e-9, atol=1e-10), (kind, name, (found - wanted).abs().max())
        if processes.leads:
            print(kind, type(task).__name__, count, flush=True)
"""
KINDS: tuple[str, ...] = (
    "encoder",
    "decoder",
    "sled_encoder",
    "rmt",
    "adaptive_decoder",
    "xlnet",
    "xlnet_encoder",
    "deep",
    "funnel",
)
KINDS += ("elmo", "yoco", "electra", "t5", "transformer", "transformer_xl", "mamba")


def test_every_model_can_be_shared(tmp_path: Path) -> None:
    told = launched(tmp_path, MODELS, *KINDS)
    assert [line.split()[0] for line in told.splitlines()] == [*KINDS]


def test_blocks_are_gathered_one_by_one_where_nothing_else_has_their_weights() -> None:
    plain = Decoder.Config(vocabulary=9, width=8, depth=3)
    assert len(units(plain.build())) == 3
    assert not units(plain.model_copy(update={"order": (0, 0, 0)}).build())  # one block, three times
    both = Seq2seq.Config(
        encoder=Encoder.Config(vocabulary=9, width=8, depth=2),
        decoder=plain.model_copy(update={"cross": Cross.Config(), "depth": 1}),
    )
    assert len(units(both.build())) == 3
    tied = plain.build()
    first, second = (part for name, part in tied.named_modules() if name.endswith("mixer.query") and ".2." not in name)
    second.weight = first.weight
    assert units(tied) == [tied.stack.blocks[2]]
    assert not units(RMT.Config(vocabulary=9, width=8, depth=2).build())


def test_what_cannot_be_shared_is_refused() -> None:
    two = Group(CPU, 0, 2)
    assert isinstance(spread(Training(parallel=Replicate()), two), Replicated)
    assert isinstance(spread(Training(parallel=Shard()), Group(CPU)), Replicated)  # nothing to share
    with pytest.raises(ConfigError, match="training.compile and training.parallel.kind=shard do not go together"):
        spread(Training(parallel=Shard(), compile=True), two)
    normed = Decoder.Config(vocabulary=9, width=8, depth=1, norm=BatchNorm())
    with pytest.raises(ConfigError, match="norm.kind=batchnorm keeps statistics"):
        Sharded(two).must_take(normed.build())
    model = Decoder.Config(vocabulary=9, width=8, depth=1).build()
    model.codes = torch.nn.Parameter(torch.ones(2, dtype=torch.int8), requires_grad=False)
    with pytest.raises(ConfigError, match="gain is a single number"):
        Sharded(two).must_take(ElmoEncoder.Config(vocabulary=9, width=8, depth=1).build())
    with pytest.raises(ConfigError, match="codes is quantised"):
        Sharded(two).must_take(model)


def relisted(place: Path) -> None:
    """Digests and sizes that agree with what is there now, as one who means harm would leave them."""
    files = [path.name for path in place.iterdir() if path.suffix in {".safetensors", ".json"}]
    told = json.loads((place / "progress.json").read_text())
    told["sizes"] = {name: (place / name).stat().st_size for name in files if name != "progress.json"}
    (place / "progress.json").write_text(json.dumps(told))
    (place / digests.SUMS).unlink()
    digests.record(place, files)


def layout(place: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Another layout.json."""
    told = json.loads((place / LAYOUT).read_text())
    change(told["tensors"]["model.encoder.embeddings.table.weight"])
    (place / LAYOUT).write_text(json.dumps(told))


WRONG: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a part is missing": (lambda lie: lie["rows"].pop(), "do not make one of shape"),
    "a part is there twice": (lambda lie: lie["rows"].append(lie["rows"][1]), "do not make one of shape"),
    "a gap": (lambda lie: lie["rows"][1].update(first=lie["rows"][1]["first"] + 1), "do not make one of shape"),
    "another shape": (lambda lie: lie["shape"].reverse(), "do not make one of shape"),
    "another dtype": (lambda lie: lie.update(dtype="F32"), "does not hold"),
    "no dtype": (lambda lie: lie.update(dtype="pickle"), "is of 'pickle'"),
    "a file elsewhere": (lambda lie: lie["rows"][0].update(file="../../model.safetensors"), "which is no shard"),
    "a file of another process": (lambda lie: lie["rows"][0].update(file="shard-00007.safetensors"), "is not a file"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_layout_that_lies_is_refused(wrong: str, made: Path, tmp_path: Path) -> None:
    place = shutil.copytree(made / "two" / "state" / "00000006", tmp_path / "00000006")
    change, words = WRONG[wrong]
    layout(place, change)
    relisted(place)
    with pytest.raises(ValueError, match=words):
        checkpoint._load(place)


@pytest.mark.parametrize("name", [LAYOUT, "shard-00001.safetensors"])
def test_the_newest_damaged_falls_back(name: str, made: Path, tmp_path: Path) -> None:
    run = shutil.copytree(made / "two", tmp_path / "run")
    newest = run / "state" / "00000006"
    hurt = bytearray((newest / name).read_bytes())
    hurt[len(hurt) // 2] ^= 1
    (newest / name).write_bytes(hurt)
    said: list[str] = []
    found = checkpoint.Checkpoint.load(Run(run), said.append)
    assert found is not None
    assert found.progress.step == 3
    assert name in said[0]
    (newest / name).unlink()
    assert checkpoint.damage(newest)
    shutil.rmtree(run / "state" / "00000003")
    with pytest.raises(RunError, match="there is no earlier one"):
        checkpoint.Checkpoint.load(Run(run))


def test_shards_are_read_one_tensor_at_a_time_and_hold_each_once(made: Path) -> None:
    shards = Shards(made / "two" / "state" / "00000006")
    held = [load_file(shards.folder / name) for name in shards.files]
    for name in shards:
        parts = [rows[name] for rows in held if name in rows]
        assert torch.equal(shards[name], torch.cat(parts) if parts[0].dim() else parts[0])
        assert shards.like(name).shape == shards[name].shape
        assert shards.like(name).dtype == shards[name].dtype


def test_a_disk_that_is_full_in_one_process_is_told_in_all(made: Path, tmp_path: Path) -> None:
    """Else the others would wait for it for ever."""
    code = """
import torch
from heed.core.errors import RunError
from heed.train import storage
from tests.train.support import resumed
torch.set_default_dtype(torch.float64)
real = storage.save_file
def full(tensors, path, metadata):
    if path.name == "shard-00001.safetensors":
        raise OSError(28, "No space left on device")
    real(tensors, path, metadata)
storage.save_file = full
try:
    resumed(Path(sys.argv[1]))
except RunError as error:
    print(error)
"""
    run = halfway(made / "two", tmp_path / "run")
    told = launched(tmp_path, code, run)
    assert told.count("could not be written: process 1: [Errno 28] No space left on device") == 2
    assert [place.name for place in checkpoint.found(Run(run))] == ["00000003"]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no groups of processes there")
def test_ctrl_c_under_torchrun_saves_and_goes_on(tmp_path: Path) -> None:
    """The terminal sends it to all processes, then torchrun sends it to its own once more."""
    script = tmp_path / "script.py"
    changes = (
        *PLAIN,
        SHARD,
        "training.steps=100000",
        "training.log=1",
        "training.save=100000",
        "training.evaluate=100000",
    )
    script.write_text(
        f"import sys; from pathlib import Path; from tests.train.support import trained;"
        f"trained(Path(sys.argv[1]), *{changes!r})"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    process = subprocess.Popen(
        [*launch, str(tmp_path / "run")], env=environment, start_new_session=True, stderr=subprocess.PIPE
    )
    written, deadline = tmp_path / "run" / "metrics.jsonl", time.monotonic() + 120
    while not written.exists() or len(written.read_text().splitlines()) < 4:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    (place,) = checkpoint.found(Run(tmp_path / "run"))
    assert int(place.name) >= 4
    torch.set_default_dtype(torch.float32)
    outcome = resumed(tmp_path / "run", f"training.steps={int(place.name) + 1}")
    assert outcome.progress.step == int(place.name) + 1
