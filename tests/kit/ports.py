"""TCP ports for tests: one that is free, and whether one is answered."""

from stan.cli.support.processes import accepts, free_port

__all__ = ["accepts", "free_port"]
