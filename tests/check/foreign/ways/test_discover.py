"""Ways to call strangers: by the roles of arguments, the layout of queries, and the sizes that errors ask for."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from heed.check.foreign.calls import Call, Face
from heed.check.foreign.layouts import Query
from heed.check.foreign.reach import reached
from heed.check.foreign.signature import Signature
from heed.check.foreign.sizes import Sizes
from heed.check.foreign.ways.beside import choices_of, table_forms
from heed.check.foreign.ways.hints import lengths_of, resized
from heed.check.foreign.words import Role, role_of


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("edge_index", Role.EDGES),
        ("edge_attr", Role.PAIRS),
        ("pair_rep", Role.PAIRS),
        ("prev_alignment", Role.LOOKED),
        ("attention_weights_cat", Role.LOOKED),
        ("return_attention_weights", Role.WEIGHTS),
        ("keys_length", Role.LENGTHS),
        ("memory_length", Role.LENGTHS),
        ("seq_length", Role.LENGTH),
        ("pair_mask", Role.MASK),
    ],
)
def test_roles_by_words(name: str, role: Role) -> None:
    assert role_of(name) is role


def test_a_mask_does_not_come_first() -> None:
    def forward(m: Tensor, z: Tensor, mask: Tensor | None = None) -> Tensor:
        return m

    assert dict(Signature.of(forward).roles) == {"m": Role.INPUT, "z": Role.PAIRS, "mask": Role.MASK}


class Step(nn.Module):
    """One query looks at a source; which layout it has is told by its class."""

    axes = 2

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.key = nn.Linear(hidden_size, hidden_size)

    def forward(self, hidden: Tensor, encoder_outputs: Tensor) -> Tensor:
        if hidden.dim() != self.axes or (self.axes == 3 and hidden.shape[1] != 1):
            raise ValueError("another query was expected")
        query = hidden.reshape(len(encoder_outputs), 1, -1)
        weights = (query @ self.key(encoder_outputs).mT / query.shape[-1] ** 0.5).softmax(-1)
        return (weights @ encoder_outputs).reshape(hidden.shape)


class Middle(Step):
    axes = 3


class State(nn.Module):
    """(h, c) of an LSTM, [1, B, H] each."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.key = nn.Linear(hidden_size, hidden_size)

    def forward(self, hidden: tuple[Tensor, Tensor], encoder_outputs: Tensor) -> Tensor:
        h, _ = hidden
        weights = (self.key(encoder_outputs) @ h[-1].unsqueeze(-1)).softmax(1)
        return (weights * encoder_outputs).sum(1)


@pytest.mark.parametrize(("target", "query"), [(Step, Query.VECTOR), (Middle, Query.STEP), (State, Query.STATES)])
def test_queries_step_by_step(target: type[nn.Module], query: Query) -> None:
    call = reached(target, None, None, 0).call
    assert (call.face, call.query) == (Face.CROSS, query)
    x, source = torch.randn(2, 3, call.sizes.width).double(), torch.randn(2, 5, call.sizes.width).double()
    one = call(x[:, 1:2], source)
    torch.testing.assert_close(call(x, source)[:, 1:2], one)


class Wider(nn.Module):
    """What is looked at is twice as wide as what looks, and they stand side by side."""

    def __init__(self, query_dim: int) -> None:
        super().__init__()
        self.score = nn.Linear(3 * query_dim, 1)

    def forward(self, query: Tensor, memory: Tensor) -> Tensor:
        both = torch.cat((query[:, :, None].expand(-1, -1, memory.shape[1], -1), _beside(memory, query)), -1)
        return self.score(both).squeeze(-1).softmax(-1) @ memory


def _beside(memory: Tensor, query: Tensor) -> Tensor:
    return memory[:, None].expand(-1, query.shape[1], -1, -1)


def test_a_source_of_another_width_is_solved_from_the_error() -> None:
    call = reached(Wider, None, None, 0).call
    assert call.sizes.memory == 2 * call.sizes.width
    raised = RuntimeError("mat1 and mat2 shapes cannot be multiplied (15x48 and 72x24)")
    assert Sizes(memory=48) in list(resized(raised, Sizes()))


class OnMaps(nn.Module):
    def __init__(self, dim: int, input_size: tuple[int, int] = (3, 5)) -> None:
        super().__init__()


def test_lengths_of_a_constructor_that_is_told_nothing() -> None:
    assert 15 in lengths_of(OnMaps(4))


@pytest.mark.parametrize("role", [Role.PAIRS, Role.LOOKED, Role.EDGES])
def test_what_is_passed_beside_belongs_to_the_tokens(role: Role) -> None:
    for make in choices_of(role, Sizes(), Face.SELF):
        assert 7 in make(7).shape or make(7).shape == (2, 49)


def test_tables_come_in_every_usual_form() -> None:
    size, shapes = Sizes().head, set()
    for make in table_forms(Sizes(), "cos_sin"):
        made = None if make is None else make(7)
        if isinstance(made, tuple):
            torch.testing.assert_close(made[0] ** 2 + made[1] ** 2, torch.ones_like(made[0]))
            shapes.add(tuple(made[0].shape))
    leads: tuple[tuple[int, ...], ...] = ((7,), (1, 7), (7, 1), (1, 7, 1), (1, 1, 7))
    assert shapes == {(*lead, width) for lead in leads for width in (size, size // 2)}


def test_a_plain_call_is_one_that_gives_a_stream() -> None:
    plain = Call(nn.Identity(), Signature.of(nn.Identity()), Sizes(), Face.SELF)
    assert plain.plain
    assert not plain.with_(query=Query.STEP).plain
    assert not plain.with_(face=Face.POOLED).plain
    assert not plain.crossed
    assert plain.with_(face=Face.POOLED).crossed
