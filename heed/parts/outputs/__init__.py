"""What stands behind a stack: heads and losses."""
