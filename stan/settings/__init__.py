"""The settings of a server: flags and files are read, all complaints collected, and the settings in force shown."""
