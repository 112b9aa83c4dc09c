"""What a model of a loaded checkpoint gives for a golden folder's inputs, by the shape of the model."""

from __future__ import annotations

from ...core.errors import WeightsError
from ...models import Decoder, Encoder, Listener, Seq2seq, Swin, TextTower, Towers, Viewer
from ..family import Opened
from ..feed import Outputs
from ..folder import Folder
from . import decoder, encoder, seq2seq, speech, vision


def outputs(opened: Opened, folder: Folder) -> Outputs:
    """Everything that can be computed from the inputs, under the names that references give it."""
    match opened.model:
        case Decoder():
            return decoder.outputs(opened.model, opened.family, folder)
        case Encoder():
            return encoder.outputs(opened.model, opened.family, folder)
        case Seq2seq(encoder=Listener() as listener):
            return speech.transcribed(opened.model, listener, opened.family, folder)
        case Listener():
            return speech.heard(opened.model, opened.family, folder)
        case Seq2seq():
            return seq2seq.outputs(opened.model, opened.family, folder)
        case Swin() | TextTower() | Towers() | Viewer():
            return vision.outputs(opened.model, folder)
        case model:
            raise WeightsError(f"{folder.path}: heed has no replay for a {type(model).__name__}")
