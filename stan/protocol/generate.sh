#!/bin/sh
# Makes *_pb2.py and *_pb2.pyi from the .proto files. grpcio-tools 1.74 writes code for protobuf >= 6.31.
cd "$(dirname "$0")/../.." || exit 1
exec python -m grpc_tools.protoc -I . --python_out=. --pyi_out=. \
  stan/protocol/wire.proto stan/protocol/entries.proto stan/protocol/node.proto \
  stan/protocol/extension.proto stan/protocol/admin.proto
