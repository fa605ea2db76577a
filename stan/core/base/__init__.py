"""What all of the core is built of: runs of numbers, time, limits of rate and size, what a turn gives back."""
