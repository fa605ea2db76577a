"""A node of a cluster: who is there, which groups it holds, how voters change, how leaderships spread."""
