"""What is told about parts of a text: labels of its words and the entities they spell, answers to questions."""
