"""PySyncObj held to Raft's rules: its private names, its clock and its journal appear here and nowhere else."""
