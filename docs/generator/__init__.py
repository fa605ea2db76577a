"""The makers of the documentation site of docs/: pages from the program's own tables, and links between them."""
