"""Published STAN clients, unchanged, against our server."""
