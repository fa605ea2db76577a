"""Transactions: batches that are staged, and committed together."""
