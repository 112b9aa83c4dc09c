"""Plans: the configuration of a model from a few numbers, one file per architecture."""
