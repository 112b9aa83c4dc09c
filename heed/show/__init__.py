"""What people look at: progress, tables, heat maps."""
