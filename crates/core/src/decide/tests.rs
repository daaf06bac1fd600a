//! Tests of the table of outcomes.
