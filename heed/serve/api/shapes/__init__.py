"""The types of requests and responses, and the description that is made of them."""
