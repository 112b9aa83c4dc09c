"""Strangers' modules: found, read and run, statement by statement, with stand-ins for what is not installed."""
