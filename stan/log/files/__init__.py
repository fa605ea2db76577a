"""The group log in segment files on a disk."""
