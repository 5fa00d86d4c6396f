"""The services of the lab, written as a team would write them, and what goes wrong in them."""
