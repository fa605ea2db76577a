"""Batches of a query into tables of Delta Lake and Iceberg, by their Python packages: no jar. Each batch is in the table once."""
