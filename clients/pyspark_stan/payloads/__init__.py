"""The content of messages: types of columns, and payloads in JSON, Avro and protobuf decoded into them."""
