"""Training: one clear loop, with checkpoints that go on bit for bit."""

from .start import resume as resume
from .start import train as train
