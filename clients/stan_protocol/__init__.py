"""The STAN protocol: its words, wire messages, subjects, frames, schemas, and the kernels of clients. Pure."""
