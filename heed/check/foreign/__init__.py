"""Foreign code: finding it by name, building it, finding out how it is called, within limits of time and memory."""
