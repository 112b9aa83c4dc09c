"""Ways to call a target: what is passed beside the stream, and what an error says about the next try."""
