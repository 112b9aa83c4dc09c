"""Another project's package in our folder: on PyPI the name `heed` is not ours.

`pip install heed` puts that project's files into the folder `heed` that `heed-attention` has filled, or the other way
round. Whichever came second has overwritten the first one's `__init__.py`, and uninstalling either tears a hole into
the other. pip says nothing about it, so heed does, when it is imported.
"""

from __future__ import annotations

import os
from functools import cache
from warnings import warn

PACKAGE = os.path.dirname(os.path.abspath(__file__))  # no pathlib: `import heed` takes milliseconds
OURS = "heed/core/contract.py"  # whoever installed this file is an earlier heed of ours

SHARED = """the package `heed` from PyPI is another project; it is installed in the same folder as heed-attention,
{folder}, and each has overwritten files of the other. Install heed-attention alone:
  pip uninstall -y heed
  pip install --force-reinstall --no-deps heed-attention"""


@cache
def warn_of_namesake(package: str = PACKAGE) -> None:
    """Say once what to do if another project's `heed` shares our folder; stop if its `__init__.py` took our place."""
    beside, name = os.path.split(package)
    for folder in _installed_as(name, beside):
        files = _files(os.path.join(beside, folder))
        if f"{name}/__init__.py" not in files or OURS in files:
            continue  # it has no files here (an editable install), or it is an earlier heed of ours
        message = SHARED.format(folder=package)
        if _digest(os.path.join(package, "__init__.py")) == files[f"{name}/__init__.py"]:
            raise ImportError(message)
        warn(message, stacklevel=3)  # the line that imports heed


def _installed_as(name: str, beside: str) -> list[str]:
    """Metadata folders of distributions of exactly this name: one look into one folder, not a scan of all metadata."""
    try:
        return [entry for entry in os.listdir(beside) if entry.startswith(f"{name}-") and entry.endswith(".dist-info")]
    except OSError:  # heed is imported from an archive
        return []


def _files(folder: str) -> dict[str, str]:
    """What a distribution has installed, and the digest of each file."""
    try:
        with open(os.path.join(folder, "RECORD"), encoding="utf-8") as record:
            rows = [line.strip().rsplit(",", 2) for line in record]
    except OSError:
        return {}
    return {row[0]: row[1] for row in rows if len(row) == 3}


def _digest(path: str) -> str:
    """As it stands in a RECORD."""
    import base64
    import hashlib

    with open(path, "rb") as file:
        digest = hashlib.sha256(file.read()).digest()
    return "sha256=" + base64.urlsafe_b64encode(digest).decode().rstrip("=")
