"""MariaDB and MySQL as stores: sessions with one snapshot, digests by the portable hash, rows in canonical form."""
