"""HTTP pages: those of NATS Streaming Server, health, metrics, and the dashboard. They read the broker's state when they are
asked; while nobody asks, all they do is to look every ten seconds how the nodes are.
"""
