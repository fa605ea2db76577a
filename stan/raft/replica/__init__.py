"""State of one member of a group beside its log: proposals, entries handed out, durability, hand-over of leadership."""
