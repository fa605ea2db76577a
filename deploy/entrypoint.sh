#!/bin/sh
# Flags are those of the server, with its name or the original's in front of them or without one; all else is a command. So
# what was written for an image of NATS Streaming Server, with a shell in it or without, starts this one.
set -eu
case "${1-}" in
    stan-server | nats-streaming-server | /nats-streaming-server) shift ;;
    -* | "") ;;
    *) exec "$@" ;;
esac
exec stan-server "$@"
