"""The group log: Raft log and message log in one, segments on disk or in memory."""
