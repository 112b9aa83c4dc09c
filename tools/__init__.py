"""What the project is made with: its site."""
