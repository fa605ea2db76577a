"""What one member of a group keeps beside its log: proposals, what it handed out, durability, hand-over of leadership."""
