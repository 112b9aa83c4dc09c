"""What a check found: as a value, for the terminal, as an HTML page, and as JUnit and SARIF for other tools."""
