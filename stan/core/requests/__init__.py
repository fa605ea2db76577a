"""How a request finds who may answer it, and when its copy of the metadata is new enough."""
