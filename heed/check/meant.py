"""What a name asks for: `sigmoid=True` and `linear_attention` have no softmax, and say so. That is no bug there."""

from __future__ import annotations

import re

# By the name of a bug: words in the name of a switch, or of the target itself, that ask for just that.
MEANT = {
    "no-softmax": re.compile(r"sigmoid|relu|softmax|silu|laplac|square|linear|tanh|kernel|performer|retention|lambda"),
    "wrong-scale": re.compile(r"scal|norm|cosine|l2|mup|temperature"),
    "excludes-self": re.compile(r"exclud|self|diag"),
    "softmax-axis": re.compile(r"slot|inver|axis|axial|efficient|linear"),
}


def meant_by(name: str) -> set[str]:
    """The bugs that are none where something is called so."""
    return {slug for slug, words in MEANT.items() if words.search(name.lower())}
