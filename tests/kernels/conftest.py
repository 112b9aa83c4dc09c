"""What is compiled can be tested only where there is a compiler; everything else is tested without."""

from __future__ import annotations

import pytest

from heed.kernels import build


@pytest.fixture(autouse=True, scope="package")
def _compiler() -> None:
    try:
        build._compiler()
    except build.Unavailable as why:
        pytest.skip(str(why))
