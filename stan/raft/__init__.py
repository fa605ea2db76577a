"""The Consensus port and what stands behind it."""
