"""A node of a cluster: membership, copies of groups, changes of voters, spread of leaderships."""
