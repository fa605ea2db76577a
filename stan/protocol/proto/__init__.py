"""Messages of the wire, of log entries, of requests and of nodes to each other: .proto files and what is generated from them."""
