"""What the project is made and given away with: its site, its tour, its wheels, and a newcomer's journey."""
