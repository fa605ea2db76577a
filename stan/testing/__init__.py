"""The broker in a simulation: the production core, driver and gateway under virtual time, behind a NATS that breaks on demand.

`stan_client.testing` runs programs of users against it; the broker's own simulated worlds are built from the same parts.
"""
