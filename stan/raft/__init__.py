"""The Consensus port and its implementations."""
