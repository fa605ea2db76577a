"""The state of a cluster as an operator has to know it: positions, groups, and findings with their next steps. Pure."""
