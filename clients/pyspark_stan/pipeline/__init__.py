"""Pipelines: channels read, decoded, transformed and published by Spark, all of it told by one TOML file.

`config` reads and checks the file and needs neither Spark nor Java; `run` does what it says.
"""
