"""Dead letters: messages that a position has given up, moved into another channel and back."""
