"""Answers that read the log: fetches of ranges, verification, the share of a partitioned server."""
