"""The user's source beside the run of it: where a bug stands, and what to write instead."""
