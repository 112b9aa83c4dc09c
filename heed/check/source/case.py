"""What a rule is given: the user's code, the diagnosis, and calls of the target that are watched when asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch

from ..diagnose import Diagnosis
from ..foreign.sizes import Sizes
from ..foreign.words import Role
from ..masks import Form, Numbers, Shape
from ..subject import Subject
from ..sweep import settings, with_setting
from .flow import Attended, attended
from .home import Home
from .names import Names
from .watch import Event, watched


@dataclass(eq=False)
class Case:
    """A target that something is wrong with."""

    home: Home
    subject: Subject | None  # None if it is no attention
    run: Callable[[], Any]  # the check of it, once more: so other kinds are watched
    one: Diagnosis | None = None
    extra: dict[str, Any] = field(default_factory=dict)  # what every call is given besides

    @property
    def sizes(self) -> Sizes:
        return Sizes() if self.subject is None else self.subject.sizes

    @cached_property
    def names(self) -> Names:
        recipe = None if self.subject is None else self.subject.recipe
        return Names(self.home, recipe, None if self.subject is None else self.subject.module)

    @cached_property
    def events(self) -> list[Event]:
        """All operations of one call without a mask; of what is no attention, those of all calls of its check."""
        if self.subject is None:
            with watched(self.home) as recorder:
                self.run()
            return recorder.events
        return self._called(self.subject, {})

    def paths(self) -> Iterator[Case]:
        """The same on other ways through the code: asked for its weights, or built with a switch turned."""
        if self.subject is None:
            return
        for name in self.subject.call.signature.all(Role.WEIGHTS):
            yield replace(self, extra={name: True})
        for setting in settings(self.subject):
            other = with_setting(self.subject, setting)
            if other is not None:
                yield replace(self, subject=other)

    @cached_property
    def masked(self) -> dict[str, list[Event]]:
        """The same with a mask, by the argument that takes it, which is also what the mask is fed as."""
        if self.subject is None:
            return {}
        found = {}
        for name in self.subject.call.signature.all(Role.MASK, Role.PADDING, Role.LENGTHS):
            form = self._form(self.subject, name)
            sees = torch.ones(*self.subject.stream().shape[:2], self.subject.keys(self.subject.stream())).bool()
            sees[:, :, -1] = False
            found[name] = self._called(self.subject, {name: form.write(sees, self.sizes.heads)})
        return found

    def _form(self, subject: Subject, name: str) -> Form:
        known = subject.masks.get(name)
        forms = () if known is None else (*known.forms, *known.felt, *known.taken)
        padding = subject.call.signature.roles[name] is Role.PADDING
        usual = Form(name, Shape.KEYS if padding else Shape.ONE_HEAD_PAIRS, Numbers.TRUE, attend=not padding)
        return next(iter(forms), usual)

    @cached_property
    def dropping(self) -> list[Event]:
        """One call, not training, of a target that was built with dropout."""
        if self.subject is None or self.subject.recipe is None:
            return self.events
        for name in self.subject.recipe.dropouts:
            other = self.subject.rebuilt(**{name: 0.5})
            if other is not None:
                return self._called(other, {})
        return self.events

    def _called(self, subject: Subject, extra: dict[str, Any]) -> list[Event]:
        """Queries, keys and values are told apart where they are given apart."""
        x, source, value = subject.stream(), subject.source(), None
        if subject.three:
            source, value = subject.stream(seed=6), subject.stream(seed=8)
        with watched(self.home, stream=x, source=source, value=value, **extra) as recorder:
            subject.call(x, source, value, {**self.extra, **extra})
        return recorder.events

    @cached_property
    def everything(self) -> list[Event]:
        """Without and with masks."""
        return [*self.events, *(event for events in self.masked.values() for event in events)]

    @cached_property
    def attended(self) -> list[Attended]:
        return attended(self.events) or [one for events in self.masked.values() for one in attended(events)]
