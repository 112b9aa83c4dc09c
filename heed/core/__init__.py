"""The contract, state, laws and configuration: imports torch and nothing of ours."""

from __future__ import annotations

from .installed import warn_of_namesake as _warn_of_namesake

# Here, because every way into heed comes by: `import heed`, and its command where another `__init__.py` took our place.
_warn_of_namesake()
