//! What is read and shown: tasks, pages, the dispatcher's view, figures.

pub(crate) mod dispatch;
pub(crate) mod figures;
pub(crate) mod pages;
pub(crate) mod reads;
pub(crate) mod tallies;
