"""A model in use: text, encoder, vision, speech, CTC; and which pipeline a checkpoint gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.tables import later

if TYPE_CHECKING:
    from .attentions import Attentions as Attentions
    from .attentions import CrossAttentions as CrossAttentions
    from .attentions import Inspected as Inspected
    from .base import Pipeline as Pipeline
    from .encoder import EncoderPipeline as EncoderPipeline
    from .forward import ModelOutput as ModelOutput
    from .generation import Completion as Completion
    from .generation import GenerationPipeline as GenerationPipeline
    from .media.ctc import CTCRecognition as CTCRecognition
    from .media.speech import SpeechRecognition as SpeechRecognition
    from .media.vision import ImageClassification as ImageClassification
    from .media.vision import ImageEmbedding as ImageEmbedding
    from .media.vision import TextEmbedding as TextEmbedding
    from .media.vision import ZeroShotImageClassification as ZeroShotImageClassification
    from .results import Prediction as Prediction
    from .results import Regression as Regression
    from .results import Response as Response
    from .settings import GenerationConfig as GenerationConfig
    from .settings import GenerationKeywords as GenerationKeywords
    from .text import Text2TextGeneration as Text2TextGeneration
    from .text import TextGeneration as TextGeneration
else:
    _VISION = ("ImageClassification", "ImageEmbedding", "TextEmbedding", "ZeroShotImageClassification")
    __getattr__, __dir__ = later(
        __name__,
        {
            "Pipeline": "base",
            **dict.fromkeys(("Attentions", "CrossAttentions", "Inspected"), "attentions"),
            "ModelOutput": "forward",
            **dict.fromkeys(("Completion", "GenerationPipeline"), "generation"),
            **dict.fromkeys(("Prediction", "Regression", "Response"), "results"),
            **dict.fromkeys(("GenerationConfig", "GenerationKeywords"), "settings"),
            **dict.fromkeys(("Text2TextGeneration", "TextGeneration"), "text"),
            **dict.fromkeys(_VISION, "media.vision"),
            "CTCRecognition": "media.ctc",
            "EncoderPipeline": "encoder",
            "SpeechRecognition": "media.speech",
        },
    )
