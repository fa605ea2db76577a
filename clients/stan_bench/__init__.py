"""`stan bench` and `stan demo`: commands that start brokers of their own, load them, kill them, and count."""
