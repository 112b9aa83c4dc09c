"""Answers to a file of prompts: line i of one file is answered by line i of another, whatever ends the process between.

`answer_file(engine, prompts, answers)` goes on where the file of answers ends.
"""

from __future__ import annotations

from .filing import Progress, answer_file

__all__ = ["Progress", "answer_file"]
