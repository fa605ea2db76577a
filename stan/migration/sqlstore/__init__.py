"""The SQL store of a NATS Streaming Server, in PostgreSQL or MariaDB and MySQL, read in place."""
