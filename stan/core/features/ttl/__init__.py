"""Messages with a time to live."""
