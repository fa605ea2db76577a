"""The replicated state of the metadata group: clients, the registry of channels, policies, schemas, the pool. Pure."""
