"""HTTP pages: those of NATS Streaming Server, health, metrics, and the dashboard. They read the broker's state at each request;
without requests, the dashboard only checks the nodes' health every ten seconds.
"""
