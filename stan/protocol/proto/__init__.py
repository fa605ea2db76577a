"""Messages of log entries and of nodes to each other: .proto files and generated code."""
