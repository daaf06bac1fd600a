//! What roles keep here: agents, role leases, the watchdog, and who is woken when.

pub(crate) mod agents;
pub(crate) mod role_leases;
pub(crate) mod wakes;
pub(crate) mod watchdog;
