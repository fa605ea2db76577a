"""`stan bench`: loads, measurements, reports."""
