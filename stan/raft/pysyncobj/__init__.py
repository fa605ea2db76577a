"""PySyncObj held to Raft's rules: its private names, its clock and its journal are met here and nowhere else."""
