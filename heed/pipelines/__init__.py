"""A model in use: text, encoders, images, sounds; and which pipeline a checkpoint gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.tables import later

if TYPE_CHECKING:
    from .base import Completion as Completion
    from .base import GenerationConfig as GenerationConfig
    from .base import Pipeline as Pipeline
    from .base import Prediction as Prediction
    from .base import Response as Response
    from .base import Scores as Scores
    from .base import TextGeneration as TextGeneration
    from .base import cross_entropy_of as cross_entropy_of
else:
    _BASE = ("Completion", "GenerationConfig", "Pipeline", "Prediction", "Response", "Scores", "TextGeneration")
    __getattr__, __dir__ = later(__name__, {**dict.fromkeys(_BASE, "base"), "cross_entropy_of": "base"})
