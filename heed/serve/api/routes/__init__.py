"""What is done for each route: one function for each, which takes an `Exchange` and gives a response."""
