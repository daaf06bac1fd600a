//! Which start is chosen.
