"""Wirings: where norms and residual connections sit; configurations and modules."""
