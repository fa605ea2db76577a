"""HTTP pages: those of NATS Streaming Server, health, metrics. They read the broker's state when they are asked, and cost nothing
while nobody asks.
"""
