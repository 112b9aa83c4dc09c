"""`python -m heed`."""

from .cli import main

main()
