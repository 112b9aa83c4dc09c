"""What foreign code may not do to the process it runs in: print, download, ask, leave settings behind."""
