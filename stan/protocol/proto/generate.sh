#!/bin/sh
# Makes *_pb2.py and *_pb2.pyi from the .proto files. grpcio-tools 1.74 writes code for protobuf >= 6.31.
cd "$(dirname "$0")/../../.." || exit 1
python -m grpc_tools.protoc -I . --python_out=. --pyi_out=. stan/protocol/proto/entries.proto stan/protocol/proto/node.proto
cd clients && exec python -m grpc_tools.protoc -I . --python_out=. --pyi_out=. \
  stan_protocol/proto/wire.proto stan_protocol/proto/extension.proto stan_protocol/proto/admin.proto
