"""Messages as programs see them: new ones, received ones, and middleware, which runs around both."""
