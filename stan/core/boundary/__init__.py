"""What the rest of the program sees of the broker, and how replicated state comes into it: the view, fetches, loading."""
