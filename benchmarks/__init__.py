"""How fast and how small heed is, beside the best that plain torch offers. `python -m benchmarks`; see README.md."""
