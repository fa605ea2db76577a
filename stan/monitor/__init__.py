"""What people and machines look at while the broker runs."""
