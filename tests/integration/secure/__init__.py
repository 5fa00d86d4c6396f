"""What holds where every client has to log in, and may do what it was granted and no more."""
