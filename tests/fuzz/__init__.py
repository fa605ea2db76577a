"""Random and mutated inputs for every parser of what comes from a network, a disk or a person."""
