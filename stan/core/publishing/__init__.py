"""From publishes to entries and acks: channels, queues, batches of producers, transactions."""
