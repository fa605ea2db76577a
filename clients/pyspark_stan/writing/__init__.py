"""The sink: which channel a row goes to, who wrote it, publishing in tasks, committing on the driver."""
