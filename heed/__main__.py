"""`python -m heed`."""

from .cli import main

if __name__ == "__main__":  # a process that loads files imports it, too
    main()
