"""The contract, state, laws and configuration: imports torch and nothing of ours."""
