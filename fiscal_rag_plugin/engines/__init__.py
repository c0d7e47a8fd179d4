"""Vector engines: one port, several implementations; each is imported where it is used."""
