"""What can be learnt from texts alone, before any task: masked tokens, corrupted texts, replaced tokens."""
