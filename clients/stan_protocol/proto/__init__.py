"""Messages of the wire and of requests to the server: .proto files and generated code."""
