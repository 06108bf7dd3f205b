"""What SQLite and Postgres share: operations as generators, run by the driver of either."""
