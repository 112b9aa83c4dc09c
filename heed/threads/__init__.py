"""Threads: how many, by the cores that are really there, and how they wait for one another.

A machine that is shared (a laptop, a CI machine, a container with a quota) punishes threads that spin while they wait:
they take the very cores that the threads they wait for need.
"""
