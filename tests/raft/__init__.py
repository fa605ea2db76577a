"""Tests of the replicated groups."""
