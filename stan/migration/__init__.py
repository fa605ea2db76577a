"""Moving in: what another server has left on disk becomes a data directory of ours."""
