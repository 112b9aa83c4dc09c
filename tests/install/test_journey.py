"""A newcomer's journey, from the wheel and outside the project: tools/journey.py, step by step."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.dist import StepFailed, run
from tools.journey import STEPS, Journey, begin


@pytest.fixture(scope="module")
def journey(tmp_path_factory: pytest.TempPathFactory) -> Journey:
    return begin(tmp_path_factory.mktemp("journey"))


def test_the_newcomers_journey(journey: Journey) -> None:
    """All steps, although one has failed: each says for itself what is wrong."""
    problems = []
    for step in STEPS:
        try:
            step(journey)
        except StepFailed as error:
            problems.append(f"{step.__name__}: {error}")
    assert not problems, "\n\n".join(problems)


def test_nothing_of_the_project_is_imported(journey: Journey, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where PYTHONPATH names it, as the tests of the project may have it."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    journey.install()  # says where it was imported from, if that is elsewhere
    place = Path(journey.python("import heed; print(heed.__file__)").strip())
    assert place.is_relative_to(journey.environment.folder.resolve())


def test_the_kernels_of_the_wheel_are_its_own(journey: Journey) -> None:
    sources = Path(journey.python("import heed.kernels; print(heed.kernels.__file__)").strip()).with_name("source")
    assert sources.is_relative_to(journey.environment.folder.resolve())
    assert len(list(sources.glob("*.cpp"))) >= 10


def test_a_step_that_fails_says_what_was_run_and_what_it_said(tmp_path: Path) -> None:
    with pytest.raises(StepFailed, match=r"(?s)-c import sys.*ended with 3, not 0:\nso it is"):
        run(["python3", "-c", "import sys; print('so it is'); sys.exit(3)"], tmp_path)
