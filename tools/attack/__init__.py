"""heed under attack: mutated files for every loader, killed and starved processes, flipped bits.

make attack                                     five minutes, as in continuous integration
python -m tools.attack --minutes 60             an hour by hand
python -m tools.attack --target gguf --seed 123 one case again
"""
