"""What a server is told: flags and files read, every complaint collected, the settings in force shown."""
