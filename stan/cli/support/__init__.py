"""What commands share: arguments, output, contexts, sessions with a cluster."""
