"""Per-message work of clients in bulk, each kernel twice: compiled (.pyx) and in plain Python; a chooser picks one at import."""
