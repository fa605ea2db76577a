"""What makes the documentation site of docs/: pages that are generated from the program's own tables, and links between them."""
