"""Messages of log entries and of nodes to each other: .proto files and what is generated from them."""
