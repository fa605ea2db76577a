"""Messages as programs see them: new ones, those that came, and what runs around both (middleware)."""
