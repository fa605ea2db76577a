"""Services that the parts of a broker share, one small object each; a part takes those that it needs from the record of all."""
