"""Pipelines: Spark reads channels, decodes and transforms their messages and publishes the results, as one TOML file describes.

`config` reads and checks the file and needs neither Spark nor Java; `run` runs the pipeline.
"""
