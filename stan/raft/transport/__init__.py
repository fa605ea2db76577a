"""Raft messages between nodes: their bytes, links without loss, all groups of a node on one link per peer."""
