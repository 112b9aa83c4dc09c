"""A model in use: text, encoder, vision, speech, CTC; and which pipeline a checkpoint gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.tables import later

if TYPE_CHECKING:
    from .base import Pipeline as Pipeline
    from .base import Prediction as Prediction
    from .base import Regression as Regression
    from .base import Response as Response
    from .ctc import CTCRecognition as CTCRecognition
    from .encoder import EncoderPipeline as EncoderPipeline
    from .speech import SpeechRecognition as SpeechRecognition
    from .text import Completion as Completion
    from .text import GenerationConfig as GenerationConfig
    from .text import GenerationPipeline as GenerationPipeline
    from .text import Text2TextGeneration as Text2TextGeneration
    from .text import TextGeneration as TextGeneration
    from .vision import ImageClassification as ImageClassification
    from .vision import ImageEmbedding as ImageEmbedding
    from .vision import TextEmbedding as TextEmbedding
    from .vision import ZeroShotImageClassification as ZeroShotImageClassification
else:
    _TEXT = ("Completion", "GenerationConfig", "GenerationPipeline", "Text2TextGeneration", "TextGeneration")
    _VISION = ("ImageClassification", "ImageEmbedding", "TextEmbedding", "ZeroShotImageClassification")
    __getattr__, __dir__ = later(
        __name__,
        {
            **dict.fromkeys(("Pipeline", "Prediction", "Regression", "Response"), "base"),
            **dict.fromkeys(_TEXT, "text"),
            **dict.fromkeys(_VISION, "vision"),
            "CTCRecognition": "ctc",
            "EncoderPipeline": "encoder",
            "SpeechRecognition": "speech",
        },
    )
