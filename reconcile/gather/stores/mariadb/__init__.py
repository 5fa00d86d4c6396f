"""MariaDB and MySQL as stores: one session with one snapshot, digests by the portable hash, rows in canonical form."""
