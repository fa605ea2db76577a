"""The nodes of a clustered NATS Streaming Server at rest: Raft logs, snapshots, and the state and messages that they agree on."""
