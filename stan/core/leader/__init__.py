"""What the leader of a group knows beside the replicated state: the live view of its subscriptions, and what it heard before."""
