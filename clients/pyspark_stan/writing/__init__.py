"""The sink: the channel of a row, the identity of its writer, publishing in tasks, committing on the driver."""
