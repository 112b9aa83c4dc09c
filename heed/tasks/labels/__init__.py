"""What is told about a text that was read whole: its class, how near it is to another, a tag per word, a span."""
